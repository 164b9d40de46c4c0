"""One node: it follows its jobs' ticks, takes up what others left, and runs callbacks. No node leads (C10.6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Final
from uuid import uuid4

from tenure.clock import boot_s, spread
from tenure.errors import JobDatabaseError, TenureError
from tenure.scheduling import events, operations
from tenure.scheduling.crew import RELEASE_LIMIT_S
from tenure.scheduling.follower import Follower
from tenure.scheduling.jobs import Job
from tenure.scheduling.node_context import BUSY_S, LOOK_AGAIN_S, NodeContext, rest
from tenure.scheduling.planner import ON_TIME
from tenure.scheduling.ports import Port
from tenure.scheduling.values import Heard, NodeLife, Outcome, Retake, Unfinished, Verdict
from tenure.trust import Backoff

LOOK_GAP_S: Final = 0.05
"""However often it is asked to look, a node looks no more often than this."""
SKEW: Final = timedelta(seconds=1)

logger = logging.getLogger("tenure")


class Node:
    """Run jobs from `start` to `stop`, on the running loop."""

    def __init__(
        self,
        port: Port,
        jobs: Iterable[Job],
        *,
        poll_s: float,
        max_concurrent_runs: int,
        listeners: Iterable[events.Listener] = (),
    ) -> None:
        self._context = NodeContext(port, max_concurrent_runs=max_concurrent_runs, listeners=listeners)
        self._followers = {job.code: Follower(self._context, job) for job in jobs}
        self._life = NodeLife(node=uuid4(), label=port.owner_label)
        self._poll_s = poll_s
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._skewed = False
        self._turned_boot_s = boot_s()

    async def start(self) -> None:
        """Register the jobs and begin; raise what somebody must mend, wait for a database that is away."""
        try:
            await self._register()
        except JobDatabaseError as error:
            if not error.transient:
                raise
            self._context.trouble(error)
        self._loops.append(asyncio.create_task(self._watch(), name="tenure-watch"))
        self._loops += [
            asyncio.create_task(follower.follow(), name=f"tenure-follow {code}")
            for code, follower in self._followers.items()
        ]

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more at once; let callbacks end; release what is left after the time of grace (C10.8)."""
        self._stopping = True
        for loop in self._loops:
            loop.cancel()
        draining = asyncio.ensure_future(self._context.crew.drain(grace_s))
        await asyncio.gather(*self._loops, return_exceptions=True)
        await draining
        with contextlib.suppress(TenureError, TimeoutError):
            async with asyncio.timeout(RELEASE_LIMIT_S):
                await self._context.port.perform(
                    operations.forget_node(self._context.statements, self._life.node, now_boot_s=boot_s())
                )

    def force(self) -> None:
        """End the time of grace now (C10.8)."""
        self._context.crew.force()

    def healthy(self) -> bool:
        """Say whether the loops turn: false once the database was not heard of for a while, or a loop has ended."""
        silent_s = boot_s() - self._turned_boot_s
        ended = any(loop.done() for loop in self._loops)
        return bool(self._loops) and not self._stopping and not ended and silent_s < max(3 * self._poll_s, LOOK_AGAIN_S)

    # What the database says of all jobs, and what others have left.

    async def _watch(self) -> None:
        backoff, failures, look = Backoff(0.2, 5.0), 0, self._context.look
        while True:
            look.clear()
            try:
                pause_s = await self._watch_once()
            except Exception as error:  # noqa: BLE001 - the loop survives everything
                failures += 1
                self._context.reachable.clear()
                self._context.trouble(error)
                await asyncio.sleep(backoff.delay_s(failures, spread()))
            else:
                failures = 0
                await asyncio.sleep(LOOK_GAP_S)
                await rest(max(min(pause_s, LOOK_AGAIN_S) - LOOK_GAP_S, 0.0), look)

    async def _watch_once(self) -> float:
        context = self._context
        if not context.registered:
            await self._register()
        fingerprints = {code: follower.job.schedule.fingerprint for code, follower in self._followers.items()}
        offset, sent_s = self._wall_clock_offset(), boot_s()
        heard = await context.port.perform(
            operations.beat(context.statements, self._life, fingerprints, offset, now_boot_s=sent_s)
        )
        self._hear(heard, sent_s)
        self._turned_boot_s = boot_s()
        self._tell_skew()
        return await self._take_up_what_is_left()

    async def _register(self) -> None:
        context, sent_s = self._context, boot_s()
        jobs = [follower.job.registration() for follower in self._followers.values()]
        heard = await context.port.perform(
            operations.registration(context.statements, self._life, jobs, now_boot_s=sent_s)
        )
        context.registered = True
        self._hear(heard, sent_s)
        for replaced in heard.replaced:
            logger.warning(
                "Job %r was registered with another schedule, %s (%s), by %s. This registration rules now.",
                replaced.code, replaced.schedule, replaced.timezone, replaced.registered_by,
            )  # fmt: skip
            context.tell(events.ScheduleReplaced(replaced=replaced))

    def _hear(self, heard: Heard, sent_s: float) -> None:
        self._context.clock.learn(heard.clock, sent_s, boot_s())
        self._context.reachable.set()
        for code, follower in self._followers.items():
            if state := heard.jobs.get(code):
                follower.hear(state.watermark, state.fingerprint, state.registered_by)
            else:
                self._context.registered = False  # its row was deleted: make the job known again
                self._context.look.set()

    def _wall_clock_offset(self) -> timedelta | None:
        if not self._context.clock.is_known:
            return None
        return timedelta(seconds=time.time() - self._context.clock.at(boot_s()).timestamp())

    def _tell_skew(self) -> None:
        offset = self._wall_clock_offset()
        skewed = offset is not None and abs(offset) > SKEW
        if skewed and not self._skewed and offset is not None:
            logger.warning(
                "This node's clock is %+.1f s off the database's. Ticks follow the database's, so nothing is late for "
                "it; mend the clock for the sake of logs.", offset.total_seconds(),
            )  # fmt: skip
            self._context.tell(events.ClockSkewed(offset=offset))
        self._skewed = skewed

    async def _take_up_what_is_left(self) -> float:
        """Take up runs that died, are due for a retry or wait (C10.4); say when to look again."""
        context, pause_s = self._context, self._poll_s * (0.75 + spread() / 2)
        leases = {code: follower.job.options("a tick").lease_ms for code, follower in self._followers.items()}
        if not leases:
            return pause_s
        found = await context.port.perform(operations.unfinished(context.statements, leases, now_boot_s=boot_s()))
        for unfinished in _shuffled_by_job(found.runs):
            if context.crew.full:
                return min(pause_s, BUSY_S)
            await self._take_up(unfinished)
        if found.next_retry_at is not None:
            pause_s = min(pause_s, max((found.next_retry_at - found.clock).total_seconds(), 0.0) + 0.02 * spread())
        return pause_s

    async def _take_up(self, unfinished: Unfinished) -> None:
        context, job = self._context, self._followers[unfinished.code].job
        if unfinished.run_key is None:
            return
        most = job.retry.max_attempts
        if unfinished.outcome in (Outcome.RELEASED, Outcome.RETRIED):
            most = max(
                most, unfinished.attempt + 1
            )  # a shutdown in order has used up none, and an operator may ask for more
        wanted = Retake(options=job.options(unfinished.run_key), max_attempts=most, overlap=job.overlap)
        await context.crew.take_slot()
        claimed = await context.claim(
            lambda token, owner: operations.retake(
                context.statements, wanted, token, owner, now_boot_s=boot_s(), clock=boot_s
            )
        )
        if claimed.verdict is Verdict.EXHAUSTED:
            context.crew.tell_exhausted(job, unfinished.scheduled_at)
        if claimed.won is not None:
            late = claimed.clock - unfinished.scheduled_at > ON_TIME
            context.crew.begin(job, claimed, unfinished.run_key, unfinished.scheduled_at, is_catch_up=late)


def _shuffled_by_job(runs: Iterable[Unfinished]) -> list[Unfinished]:
    """Give the jobs in a random order, so that nodes do not reach for the same run; each job's runs oldest first."""
    by_code: dict[str, list[Unfinished]] = {}
    for run in runs:
        by_code.setdefault(run.code, []).append(run)
    codes = list(by_code)
    random.SystemRandom().shuffle(codes)
    return [run for code in codes for run in by_code[code]]
