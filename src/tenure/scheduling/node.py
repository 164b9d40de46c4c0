"""One node: it follows its jobs' ticks, takes up what others left, and runs callbacks. No node leads (C10.6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from tenure.clock import boot_s, spread
from tenure.errors import JobDatabaseError, TenureError
from tenure.lease import JobAcquired
from tenure.scheduling import events, operations
from tenure.scheduling.crew import RELEASE_LIMIT_S, Crew
from tenure.scheduling.database_clock import DatabaseClock
from tenure.scheduling.instants import run_key
from tenure.scheduling.jobs import Job
from tenure.scheduling.planner import ON_TIME, Claim, Decide, Wait, next_step
from tenure.scheduling.ports import ClaimFor, Port
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import (
    Claimed,
    Decision,
    Heard,
    NodeLife,
    Outcome,
    Retake,
    TickClaim,
    Unfinished,
    Verdict,
)
from tenure.trust import Backoff

CLAIMS_AT_ONCE: Final = 8
LOOK_AGAIN_S: Final = 30.0
"""Timers of a loop stand still while the host sleeps, so nobody sleeps longer than this in one go."""
SKEW: Final = timedelta(seconds=1)
LOG_EVERY_S: Final = 60.0
_BUSY_S: Final = 0.5

logger = logging.getLogger("tenure")


@dataclass(slots=True, eq=False)
class Followed:
    """Hold what a node knows of one of its jobs."""

    job: Job
    watermark: datetime | None = None
    superseded: bool = False
    nudged: asyncio.Event = field(default_factory=asyncio.Event)
    jitter: tuple[datetime | None, timedelta] = (None, timedelta(0))

    def starts_at(self, tick: datetime) -> datetime:
        """Say when this node claims a tick: a random while later, drawn once for each."""
        if self.jitter[0] != tick:
            self.jitter = (tick, self.job.jitter * spread())
        return tick + self.jitter[1]

    def learn(self, watermark: datetime | None) -> None:
        """Take note of the watermark, which only moves on."""
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark


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
        self._port = port
        self._statements = SchedulingStatements(port.table)
        self._followed = {job.code: Followed(job) for job in jobs}
        self._life = NodeLife(node=uuid4(), label=f"{socket.gethostname()}:{os.getpid()}"[:256])
        self._poll_s = poll_s
        self._crew = Crew(port, slots=max_concurrent_runs, tell=self._tell, on_end=self._run_ended)
        self._claims = asyncio.Semaphore(CLAIMS_AT_ONCE)
        self._listeners = tuple(listeners)
        self._clock = DatabaseClock()
        self._reachable = asyncio.Event()
        self._look = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._registered = False
        self._skewed = False
        self._turned_boot_s = boot_s()
        self._logged_boot_s = float("-inf")

    async def start(self) -> None:
        """Register the jobs and begin; raise what somebody must mend, wait for a database that is away."""
        try:
            await self._register()
        except JobDatabaseError as error:
            if not error.transient:
                raise
            self._trouble(error)
        self._loops.append(asyncio.create_task(self._watch(), name="tenure-watch"))
        self._loops += [
            asyncio.create_task(self._follow(followed), name=f"tenure-follow {code}")
            for code, followed in self._followed.items()
        ]

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more at once; let callbacks end; release what is left after the time of grace (C10.8)."""
        self._stopping = True
        for loop in self._loops:
            loop.cancel()
        draining = asyncio.ensure_future(self._crew.drain(grace_s))
        await asyncio.gather(*self._loops, return_exceptions=True)
        await draining
        with contextlib.suppress(TenureError, TimeoutError):
            async with asyncio.timeout(RELEASE_LIMIT_S):
                await self._port.perform(operations.forget_node(self._statements, self._life.node, now_boot_s=boot_s()))

    def healthy(self) -> bool:
        """Say whether the loops turn: false once the database was not heard of for a while, or a loop has ended."""
        silent_s = boot_s() - self._turned_boot_s
        ended = any(loop.done() for loop in self._loops)
        return not self._stopping and not ended and silent_s < max(3 * self._poll_s, LOOK_AGAIN_S)

    # What the database says of all jobs, and what others have left.

    async def _watch(self) -> None:
        backoff, failures = Backoff(0.2, 5.0), 0
        while True:
            try:
                pause_s = await self._watch_once()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the loop survives everything
                failures += 1
                pause_s = backoff.delay_s(failures, spread())
                self._reachable.clear()
                self._trouble(error)
            self._look.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._look.wait()

    async def _watch_once(self) -> float:
        if not self._registered:
            await self._register()
        fingerprints = {code: followed.job.schedule.fingerprint for code, followed in self._followed.items()}
        offset = self._wall_clock_offset()
        sent_s = boot_s()
        heard = await self._port.perform(
            operations.beat(self._statements, self._life, fingerprints, offset, now_boot_s=sent_s)
        )
        self._hear(heard, sent_s)
        self._turned_boot_s = boot_s()
        self._tell_skew()
        return await self._take_up_what_is_left()

    async def _register(self) -> None:
        sent_s = boot_s()
        jobs = [followed.job.registration() for followed in self._followed.values()]
        heard = await self._port.perform(operations.registration(self._statements, self._life, jobs, now_boot_s=sent_s))
        self._registered = True
        self._hear(heard, sent_s)
        for replaced in heard.replaced:
            logger.warning(
                "Job %r was registered with another schedule, %s (%s), by %s. This registration rules now.",
                replaced.code, replaced.schedule, replaced.timezone, replaced.registered_by,
            )  # fmt: skip
            self._tell(events.ScheduleReplaced(replaced=replaced))

    def _hear(self, heard: Heard, sent_s: float) -> None:
        self._clock.learn(heard.clock, sent_s, boot_s())
        self._reachable.set()
        for code, followed in self._followed.items():
            state = heard.jobs.get(code)
            if state is None:
                self._registered = False  # its row was deleted: make the job known again
                continue
            followed.learn(state.watermark)
            self._note_fingerprint(followed, state.fingerprint, state.registered_by)
            followed.nudged.set()

    def _note_fingerprint(self, followed: Followed, ruling: str | None, by: str | None) -> None:
        superseded = ruling != followed.job.schedule.fingerprint
        if superseded and not followed.superseded:
            logger.warning(
                "Job %r was registered with another schedule since, by %s. That one rules; this node starts none of "
                "its ticks any more.", followed.job.code, by,
            )  # fmt: skip
            self._tell(events.ScheduleSuperseded(code=followed.job.code, by=by))
        followed.superseded = superseded

    def _wall_clock_offset(self) -> timedelta | None:
        if not self._clock.is_known:
            return None
        return timedelta(seconds=time.time() - self._clock.at(boot_s()).timestamp())

    def _tell_skew(self) -> None:
        offset = self._wall_clock_offset()
        skewed = offset is not None and abs(offset) > SKEW
        if skewed and not self._skewed and offset is not None:
            logger.warning(
                "This node's clock is %+.1f s off the database's. Ticks follow the database's, so nothing is late for "
                "it; mend the clock for the sake of logs.", offset.total_seconds(),
            )  # fmt: skip
            self._tell(events.ClockSkewed(offset=offset))
        self._skewed = skewed

    async def _take_up_what_is_left(self) -> float:
        """Take up runs that died, are due for a retry or wait (C10.4); say when to look again."""
        pause_s = self._poll_s * (0.75 + spread() / 2)
        leases = {code: followed.job.options("a tick").lease_ms for code, followed in self._followed.items()}
        if not leases:
            return pause_s
        found = await self._port.perform(operations.unfinished(self._statements, leases, now_boot_s=boot_s()))
        for unfinished in _shuffled_by_job(found.runs):
            if self._crew.full:
                return min(pause_s, _BUSY_S)
            await self._take_up(unfinished)
        if found.next_retry_at is not None:
            pause_s = min(pause_s, max((found.next_retry_at - found.clock).total_seconds(), 0.0) + 0.02 * spread())
        return pause_s

    async def _take_up(self, unfinished: Unfinished) -> None:
        job = self._followed[unfinished.code].job
        if unfinished.run_key is None:
            return
        most = job.retry.max_attempts
        if unfinished.outcome == Outcome.RELEASED:
            most = max(most, unfinished.attempt + 1)  # a shutdown in order has used up none
        wanted = Retake(options=job.options(unfinished.run_key), max_attempts=most, overlap=job.overlap)
        await self._crew.take_slot()
        claimed = await self._claim(
            lambda token, owner: operations.retake(
                self._statements, wanted, token, owner, now_boot_s=boot_s(), clock=boot_s
            )
        )
        if claimed.verdict is Verdict.EXHAUSTED:
            self._crew.tell_exhausted(job, unfinished.scheduled_at)
        if claimed.won is not None:
            late = claimed.clock - unfinished.scheduled_at > ON_TIME
            self._crew.begin(job, claimed, unfinished.run_key, unfinished.scheduled_at, is_catch_up=late)

    # The ticks of one job.

    async def _follow(self, followed: Followed) -> None:
        while True:
            try:
                await self._reachable.wait()
                pause_s = await self._step(followed)
            except JobDatabaseError as error:
                pause_s = _BUSY_S
                if error.transient:
                    self._reachable.clear()
                    self._look.set()
                self._trouble(error)
            except Exception as error:  # noqa: BLE001 - the loop survives everything
                pause_s = LOOK_AGAIN_S
                self._trouble(error)
            if pause_s:
                followed.nudged.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(pause_s, LOOK_AGAIN_S)):
                        await followed.nudged.wait()
            else:
                await asyncio.sleep(0)

    async def _step(self, followed: Followed) -> float:
        """Do the next thing about a job; say how long there is nothing more to do."""
        if followed.superseded or followed.watermark is None or not self._registered:
            return LOOK_AGAIN_S
        now = self._clock.at(boot_s())
        match next_step(followed.job, followed.watermark, now):
            case Wait(until=until):
                return LOOK_AGAIN_S if until is None else max((until - now).total_seconds(), 0.001)
            case Decide() as decide:
                return await self._decide(followed, decide)
            case Claim() as claim:
                starts_at = claim.tick if claim.catch_up else followed.starts_at(claim.tick)
                if starts_at > now:
                    return max((starts_at - now).total_seconds(), 0.001)
                return await self._claim_tick(followed, claim)

    async def _decide(self, followed: Followed, decide: Decide) -> float:
        assert followed.watermark is not None, "a step was planned from it"
        wanted = Decision(
            code=followed.job.code,
            fingerprint=followed.job.schedule.fingerprint,
            watermark=followed.watermark,
            ticks={run_key(tick): tick for tick in decide.ticks},
            outcome=decide.outcome,
        )
        decided = await self._port.perform(operations.decision(self._statements, wanted, now_boot_s=boot_s()))
        followed.learn(decided.watermark)
        if decided.verdict is Verdict.WON:
            first, last, count = decide.ticks[0], decide.ticks[-1], len(decide.ticks)
            logger.warning(
                "%d tick(s) of job %r, from %s to %s, do not run: %s.",
                count, followed.job.code, first.isoformat(), last.isoformat(), decide.outcome,
            )  # fmt: skip
            self._tell(
                events.TicksMissed(
                    code=followed.job.code, outcome=decide.outcome.value, first=first, last=last, count=count
                )
            )
        return self._after_refusal(followed, decided.verdict)

    async def _claim_tick(self, followed: Followed, claim: Claim) -> float:
        job = followed.job
        await self._crew.take_slot()
        if followed.watermark is None or followed.watermark >= claim.tick:
            self._crew.give_slot_back()  # another node was faster while this one had no hand free
            return 0.0
        wanted = TickClaim(
            options=job.options(run_key(claim.tick)),
            tick=claim.tick,
            previous_tick=claim.previous,
            fingerprint=job.schedule.fingerprint,
            overlap=job.overlap,
            max_lateness=job.max_lateness,
            catch_up=claim.catch_up,
        )
        claimed = await self._claim(
            lambda token, owner: operations.claim(
                self._statements, wanted, token, owner, now_boot_s=boot_s(), clock=boot_s
            )
        )
        followed.learn(claimed.watermark)
        if claimed.won is not None:
            self._crew.begin(job, claimed, run_key(claim.tick), claim.tick, is_catch_up=claim.catch_up)
            return 0.0
        if claimed.verdict in (Verdict.PAUSED, Verdict.TOO_LATE, Verdict.OVERLAPPED, Verdict.QUEUED):
            self._tell(events.TickNotRun(code=job.code, scheduled_at=claim.tick, verdict=claimed.verdict))
        return self._after_refusal(followed, claimed.verdict)

    def _after_refusal(self, followed: Followed, verdict: Verdict) -> float:
        """Say how long to wait before the next step about that job."""
        match verdict:
            case Verdict.SUPERSEDED:
                self._note_fingerprint(followed, None, None)
                self._look.set()
                return LOOK_AGAIN_S
            case Verdict.UNKNOWN:
                self._registered = False
                self._look.set()
                return _BUSY_S
            case Verdict.EARLY | Verdict.CONTENDED:
                return 0.005 + 0.02 * spread()
            case Verdict.BUSY:
                return _BUSY_S
            case _:
                return 0.0

    async def _claim(self, claim_for: ClaimFor) -> Claimed:
        """Claim with a slot in hand, which goes back unless the claim is won."""
        won: JobAcquired | None = None
        try:
            async with self._claims:
                sent_s = boot_s()
                claimed = await self._port.win(claim_for)
                self._clock.learn(claimed.clock, sent_s, boot_s())
            won = claimed.won
            return claimed
        finally:
            if won is None:
                self._crew.give_slot_back()

    def _run_ended(self, job: Job, failed: bool) -> None:
        if failed or job.overlap == "queue":
            self._look.set()  # it is due for a retry, or another run waits for its end

    def _trouble(self, error: BaseException) -> None:
        """Tell of an error in a loop: to listeners always, to the log once a minute."""
        self._tell(events.LoopTroubled(error=error))
        if boot_s() - self._logged_boot_s >= LOG_EVERY_S:
            self._logged_boot_s = boot_s()
            logger.warning("The scheduler goes on after a pause: %s: %s", type(error).__name__, error)

    def _tell(self, event: events.Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("A listener failed on %s.", type(event).__name__)


def _shuffled_by_job(runs: Iterable[Unfinished]) -> list[Unfinished]:
    """Give the jobs in a random order, so that nodes do not reach for the same run; each job's runs oldest first."""
    by_code: dict[str, list[Unfinished]] = {}
    for run in runs:
        by_code.setdefault(run.code, []).append(run)
    codes = list(by_code)
    random.SystemRandom().shuffle(codes)
    return [run for code in codes for run in by_code[code]]
