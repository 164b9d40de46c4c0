"""Renew all live leases of a service: one statement a round, from a thread with a connection of its own (C5.2, C5.3).

The thread runs a small event loop, so that a call which hangs can be given up at a time of our choosing, and so that
the same rounds can run on a caller's loop where there is no other way to connect. A lease stays with the keeper until
its callback has ended, whatever happens to the service meanwhile.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from tenure.clock import boot_s, spread
from tenure.drivers import Link, Rows
from tenure.drivers.problems import unreachable
from tenure.lease import Hold, JobLease
from tenure.operations import disownment, lost_reason, renewal
from tenure.options import JobSchedulerStatus
from tenure.rounds import LOOK_EVERY_S, ROUND_LIMIT_S, Rounds
from tenure.statements import Statements

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("tenure")

PATIENCE_S = 0.05
"""What every round may take, whatever lease is in it."""
DISOWN_FOR_S = 15.0
WARN_EVERY_S = 60.0
TOGETHER = 0.5
"""A round takes along every lease that has spent this share of its heartbeat."""

ON_LOOP = (
    "Leases are renewed on the event loop, since an asyncpg pool gives no thread a connection: a callback that blocks "
    "the loop for longer than its lease loses its run. Give the service heartbeat_database= (a connection string, "
    "say), and a thread renews."
)

DISOWNED = '{"error":"released: nobody learned that this attempt had won"}'


@dataclass(slots=True, eq=False)
class _Kept:
    """Hold a lease that is being renewed, and when that is due next."""

    lease: JobLease
    hold: Hold
    due_boot_s: float
    skipped: int = 0

    def patience_s(self) -> float:
        """Say how long the next round may be put off for this lease's sake after one that failed."""
        remaining_s = self.hold.remaining_s()
        return ROUND_LIMIT_S if remaining_s <= 0 else min(max(remaining_s / 4, 0.05), ROUND_LIMIT_S)

    def give_up_at(self, now_boot_s: float) -> float:
        """Say until when a hanging round may wait for this lease's sake: another try must fit before its deadline."""
        if self.hold.look() or self.hold.guest:
            return now_boot_s + ROUND_LIMIT_S
        start_s = max(now_boot_s, self.due_boot_s)
        return start_s + max(self.hold.window.remaining_s(start_s) / 2, PATIENCE_S)


@dataclass(slots=True)
class _Disowned:
    """Say until when a token is looked for, and when next."""

    until_boot_s: float
    due_boot_s: float = 0.0


@dataclass(slots=True)
class _Troubles:
    """Count failed rounds in a row, and say them once a minute."""

    failures: int = 0
    said_boot_s: float = field(default=-WARN_EVERY_S)

    def met(self, error: Exception, leases: int) -> None:
        self.failures += 1
        if boot_s() - self.said_boot_s >= WARN_EVERY_S:
            self.said_boot_s = boot_s()
            logger.warning("Renewing %d lease(s) failed %d time(s) in a row: %s", leases, self.failures, error)

    def over(self) -> None:
        if self.failures:
            logger.info("Renewal works again after %d failed round(s).", self.failures)
        self.failures, self.said_boot_s = 0, -WARN_EVERY_S


class Keeper(Rounds):
    """Keep leases alive. `keep`, `let_go` and `disown` may be called from any thread and never wait."""

    def __init__(
        self, connect: Callable[[float], Awaitable[Link]], statements: Statements, *, stays_on_loop: bool = False
    ) -> None:
        super().__init__(connect, "tenure-keeper", stays_on_loop=stays_on_loop)
        self._said_where = False
        self._statements = statements
        self._kept: dict[JobLease, _Kept] = {}
        self._disowned: dict[UUID, _Disowned] = {}
        self._troubles = _Troubles()

    def keep(self, lease: JobLease, hold: Hold) -> None:
        """Renew this lease from now on, if its heartbeat is not 0."""
        if not hold.heartbeat_s:
            return
        due_s = hold.window.sent_boot_s + hold.heartbeat_s
        with self._lock:
            self._kept[lease] = _Kept(lease, hold, due_s)
            self._not_before_boot_s = min(self._not_before_boot_s, due_s)
        self._rouse(due_s)

    def let_go(self, lease: JobLease) -> None:
        """Stop renewing this lease: its callback has ended."""
        with self._lock:
            self._kept.pop(lease, None)

    def disown(self, owner_token: UUID) -> None:
        """Free whatever this token may hold, as soon as the database can be reached, and for a while after that.

        A statement whose connection was cut may still wait in the server, and win after it was looked for.
        """
        with self._lock:
            self._disowned[owner_token] = _Disowned(boot_s() + DISOWN_FOR_S)
        self._rouse(0.0)

    def _started_on_loop(self) -> None:
        if not self._said_where:
            self._said_where = True
            logger.warning(ON_LOOP)

    def _has_work(self) -> bool:
        return bool(self._kept or self._disowned)

    def _next_due_boot_s(self) -> float:
        dues = [kept.due_boot_s for kept in self._kept.values()]
        dues += [work.due_boot_s for work in self._disowned.values()]
        return min(dues, default=math.inf)

    async def _round(self, wake: asyncio.Event) -> None:
        """Renew what is due, and what will be soon, in one statement."""
        now_s = boot_s()
        with self._lock:
            everything = list(self._kept.values())
            disowned = [token for token, work in self._disowned.items() if work.due_boot_s <= now_s]
        due = any(kept.due_boot_s <= now_s for kept in everything)
        if now_s < self._not_before_boot_s or not (due or disowned):
            return
        chosen = [kept for kept in everything if _goes_along(kept, now_s)] if due else []
        try:
            await self._patiently(self._talk(chosen, disowned), wake)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next round still happens
            await self._failed(error, len(chosen))
        else:
            self._troubles.over()

    async def _talk(self, chosen: Sequence[_Kept], disowned: Sequence[UUID]) -> None:
        link = await self._linked()
        if chosen:
            sent_s = boot_s()
            call = renewal(self._statements, [kept.lease for kept in chosen])
            refused = await link.fetch(call, limit_s=ROUND_LIMIT_S)
            self._take_note(chosen, refused, sent_s)
        for owner_token in disowned:
            call = disownment(self._statements, owner_token, DISOWNED)
            self._looked_for(owner_token, freed=bool(await link.fetch(call, limit_s=ROUND_LIMIT_S)))

    def _looked_for(self, owner_token: UUID, *, freed: bool) -> None:
        with self._lock:
            work = self._disowned[owner_token]
            work.due_boot_s = boot_s() + LOOK_EVERY_S
            if freed or self._closing or work.due_boot_s > work.until_boot_s:
                del self._disowned[owner_token]

    async def _patiently(self, talk: Awaitable[None], wake: asyncio.Event) -> None:
        """Wait for a round, but not longer than the lease that is most pressed can bear, newcomers included."""
        import asyncio

        task = asyncio.ensure_future(talk)
        started_s = boot_s()
        await asyncio.wait({task}, timeout=PATIENCE_S)
        while not task.done():
            wake.clear()
            with self._lock:
                give_up_s = min(
                    [started_s + ROUND_LIMIT_S, *(kept.give_up_at(started_s) for kept in self._kept.values())]
                )
                self._wakes_boot_s = give_up_s
            if (left_s := give_up_s - boot_s()) <= 0:
                self._give_up(task)
            roused = asyncio.ensure_future(wake.wait())
            await asyncio.wait({task, roused}, timeout=max(left_s, PATIENCE_S), return_when=asyncio.FIRST_COMPLETED)
            roused.cancel()
        if task.cancelled():
            raise unreachable("a new connection was not ready in time")
        task.result()

    def _give_up(self, task: asyncio.Future[None]) -> None:
        if self._link is None:
            task.cancel()
        else:
            self._link.cut()

    async def _failed(self, error: Exception, leases: int) -> None:
        self._troubles.met(error, leases)
        with self._lock:
            left_s = min((kept.patience_s() for kept in self._kept.values()), default=self._backoff.cap_s)
            pause_s = min(self._backoff.delay_s(self._troubles.failures, spread()), left_s)
            self._not_before_boot_s = boot_s() + pause_s
            self._forget_disowned_if_closing()
        await self._drop_link()

    def _forget_disowned_if_closing(self) -> None:
        """Let the thread of a closed service end although the database never came back."""
        if self._closing:
            self._disowned = {token: work for token, work in self._disowned.items() if boot_s() < work.until_boot_s}

    def _take_note(self, chosen: Sequence[_Kept], refused: Rows, sent_s: float) -> None:
        verdicts: dict[int, str] = dict(refused)
        for n, kept in enumerate(chosen, start=1):
            verdict = verdicts.get(n)
            if verdict is None:
                kept.skipped = 0
                kept.due_boot_s = sent_s + kept.hold.heartbeat_s
                kept.hold.renewed(sent_s)
            elif verdict == "locked":
                kept.skipped += 1
                kept.due_boot_s = boot_s() + min(self._backoff.delay_s(kept.skipped, spread()), kept.hold.heartbeat_s)
            else:
                self._end(kept, verdict)

    def _end(self, kept: _Kept, verdict: str) -> None:
        """Stop renewing a run that is no longer running under our token; that it was settled is no loss (C5.8)."""
        self.let_go(kept.lease)
        if verdict in (JobSchedulerStatus.SUCCESS, kept.hold.guest):
            kept.hold.was_settled(JobSchedulerStatus(verdict))
        elif not (kept.hold.settling or kept.hold.settled):
            reason = lost_reason(verdict)
            logger.warning("The lease of run %s is lost: %s.", kept.lease.id, reason.value)
            kept.hold.rejected(reason)


def _goes_along(kept: _Kept, now_s: float) -> bool:
    if kept.skipped:
        return kept.due_boot_s <= now_s
    return now_s >= kept.due_boot_s - kept.hold.heartbeat_s * (1 - TOGETHER)
