"""The ticks of one job, on one node: what is due is claimed, or decided with a reason, in order (C10.2, C10.5)."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from tenure.clock import boot_s, spread
from tenure.errors import JobDatabaseError
from tenure.scheduling import events, operations
from tenure.scheduling.instants import run_key
from tenure.scheduling.jobs import Job
from tenure.scheduling.node_context import BUSY_S, LOOK_AGAIN_S, NodeContext, rest
from tenure.scheduling.planner import Claim, Decide, Wait, next_step
from tenure.scheduling.values import Decision, TickClaim, Verdict

_NOT_RUN = (Verdict.PAUSED, Verdict.TOO_LATE, Verdict.OVERLAPPED, Verdict.QUEUED)

logger = logging.getLogger("tenure")


class Follower:
    """Follow one job from tick to tick, from the watermark on that the database has for it."""

    def __init__(self, node: NodeContext, job: Job) -> None:
        self.job = job
        self._node = node
        self._watermark: datetime | None = None
        self._superseded = False
        self._nudged = asyncio.Event()
        self._delay: tuple[datetime | None, timedelta] = (None, timedelta(0))

    def hear(self, watermark: datetime | None, fingerprint: str | None, by: str | None) -> None:
        """Take note of what the database says of the job, and go on."""
        self._learn(watermark)
        self._note_ruling(fingerprint, by)
        self._nudged.set()

    async def follow(self) -> None:
        """Claim or decide one tick after the other, until this is cancelled."""
        while True:
            self._nudged.clear()
            before = self._watermark
            pause_s = await self._step_safely()
            if not pause_s and self._watermark == before:
                pause_s = BUSY_S  # nothing came of it: ask no faster than that
            if pause_s:
                await rest(min(pause_s, LOOK_AGAIN_S), self._nudged)
            else:
                await asyncio.sleep(0)

    async def _step_safely(self) -> float:
        try:
            await self._node.reachable.wait()
            return await self._step()
        except JobDatabaseError as error:
            if error.transient:
                self._node.reachable.clear()
                self._node.look.set()
            self._node.trouble(error)
            return BUSY_S
        except Exception as error:  # noqa: BLE001 - the loop survives everything
            self._node.trouble(error)
            return LOOK_AGAIN_S

    async def _step(self) -> float:
        """Do the next thing about the job; say how long there is nothing more to do."""
        if self._superseded or self._watermark is None or not self._node.registered:
            return LOOK_AGAIN_S
        now = self._node.clock.at(boot_s())
        match next_step(self.job, self._watermark, now):
            case Wait(until=until):
                return LOOK_AGAIN_S if until is None else max((until - now).total_seconds(), 0.001)
            case Decide() as decide:
                return await self._decide(decide, self._watermark)
            case Claim() as claim:
                starts_at = claim.tick if claim.catch_up else self._starts_at(claim.tick)
                if starts_at > now:
                    return max((starts_at - now).total_seconds(), 0.001)
                return await self._claim(claim)

    async def _decide(self, decide: Decide, watermark: datetime) -> float:
        wanted = Decision(
            code=self.job.code,
            fingerprint=self.job.schedule.fingerprint,
            watermark=watermark,
            ticks={run_key(tick): tick for tick in decide.ticks},
            outcome=decide.outcome,
        )
        decided = await self._node.port.perform(operations.decision(self._node.statements, wanted, now_boot_s=boot_s()))
        self._learn(decided.watermark)
        if decided.verdict is Verdict.WON:
            self._tell_missed(decide)
        return self._pause_after(decided.verdict)

    def _tell_missed(self, decide: Decide) -> None:
        first, last, count = decide.ticks[0], decide.ticks[-1], len(decide.ticks)
        logger.warning(
            "%d tick(s) of job %r, from %s to %s, do not run: %s.",
            count, self.job.code, first.isoformat(), last.isoformat(), decide.outcome,
        )  # fmt: skip
        self._node.tell(
            events.TicksMissed(code=self.job.code, outcome=decide.outcome.value, first=first, last=last, count=count)
        )

    async def _claim(self, claim: Claim) -> float:
        node, job = self._node, self.job
        await node.crew.take_slot()
        if self._watermark is None or self._watermark >= claim.tick:
            node.crew.give_slot_back()  # another node was faster while this one had no hand free
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
        claimed = await node.claim(
            lambda token, owner: operations.claim(
                node.statements, wanted, token, owner, now_boot_s=boot_s(), clock=boot_s
            )
        )
        self._learn(claimed.watermark)
        if claimed.won is not None:
            node.crew.begin(job, claimed, run_key(claim.tick), claim.tick, is_catch_up=claim.catch_up)
        elif claimed.verdict in _NOT_RUN:
            node.tell(events.TickNotRun(code=job.code, scheduled_at=claim.tick, verdict=claimed.verdict))
        return self._pause_after(claimed.verdict)

    def _pause_after(self, verdict: Verdict) -> float:
        """Say how long to wait before the next step."""
        match verdict:
            case Verdict.SUPERSEDED:
                self._note_ruling(None, None)
                self._node.look.set()
                return LOOK_AGAIN_S
            case Verdict.UNKNOWN:
                self._node.registered = False
                self._node.look.set()
                return BUSY_S
            case Verdict.EARLY | Verdict.CONTENDED:
                return 0.005 + 0.02 * spread()
            case Verdict.BUSY:
                return BUSY_S
            case _:
                return 0.0

    def _learn(self, watermark: datetime | None) -> None:
        """Take note of the watermark, which only moves on."""
        if watermark is not None and (self._watermark is None or watermark > self._watermark):
            self._watermark = watermark

    def _note_ruling(self, fingerprint: str | None, by: str | None) -> None:
        superseded = fingerprint != self.job.schedule.fingerprint
        if superseded and not self._superseded:
            logger.warning(
                "Job %r was registered with another schedule since, by %s. That one rules; this node starts none of "
                "its ticks any more.", self.job.code, by,
            )  # fmt: skip
            self._node.tell(events.ScheduleSuperseded(code=self.job.code, by=by))
        self._superseded = superseded

    def _starts_at(self, tick: datetime) -> datetime:
        """Say when this node claims a tick: a random while later, drawn once for each."""
        if self._delay[0] != tick:
            self._delay = (tick, self.job.jitter * spread())
        return tick + self._delay[1]
