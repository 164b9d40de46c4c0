"""What the loops of one node share: the way to the database, its clock, the callbacks, and who listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from tenure.clock import boot_s
from tenure.lease import JobAcquired
from tenure.scheduling import events
from tenure.scheduling.crew import Crew
from tenure.scheduling.database_clock import DatabaseClock
from tenure.scheduling.jobs import Job
from tenure.scheduling.ports import ClaimFor, Port
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import Claimed

CLAIMS_AT_ONCE: Final = 8
LOOK_AGAIN_S: Final = 30.0
"""Timers of a loop stand still while the host sleeps, so nobody sleeps longer than this in one go."""
BUSY_S: Final = 0.5
LOG_EVERY_S: Final = 60.0

logger = logging.getLogger("tenure")


class NodeContext:
    """Hold what the loops of one node share."""

    def __init__(self, port: Port, *, max_concurrent_runs: int, listeners: Iterable[events.Listener]) -> None:
        self.port = port
        self.statements = SchedulingStatements(port.table)
        self.clock = DatabaseClock()
        self.crew = Crew(port, slots=max_concurrent_runs, tell=self.tell, on_end=self._run_ended)
        self.registered = False
        self.reachable = asyncio.Event()
        """Set while the database answers: the jobs' loops rest meanwhile."""
        self.look = asyncio.Event()
        """Set to have the node ask soon what the database says of its jobs, and what others have left."""
        self._claims = asyncio.Semaphore(CLAIMS_AT_ONCE)
        self._listeners = tuple(listeners)
        self._logged_boot_s = float("-inf")

    async def claim(self, claim_for: ClaimFor) -> Claimed:
        """Claim with a slot in hand, which goes back unless the claim is won."""
        won: JobAcquired | None = None
        try:
            async with self._claims:
                sent_s = boot_s()
                claimed = await self.port.win(claim_for)
                self.clock.learn(claimed.clock, sent_s, boot_s())
            won = claimed.won
            return claimed
        finally:
            if won is None:
                self.crew.give_slot_back()

    def tell(self, event: events.Event) -> None:
        """Hand an event to every listener; one that raises harms nobody."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("A listener failed on %s.", type(event).__name__)

    def trouble(self, error: BaseException) -> None:
        """Tell of an error in a loop: to listeners always, to the log once a minute."""
        self.tell(events.LoopTroubled(error=error))
        if boot_s() - self._logged_boot_s >= LOG_EVERY_S:
            self._logged_boot_s = boot_s()
            logger.warning("The scheduler goes on after a pause: %s: %s", type(error).__name__, error)

    def _run_ended(self, job: Job, failed: bool) -> None:
        if failed or job.overlap == "queue":
            self.look.set()  # it is due for a retry, or another run waits for its end


async def rest(pause_s: float, woken: asyncio.Event) -> None:
    """Sleep so long, or until somebody has news."""
    try:
        async with asyncio.timeout(pause_s):
            await woken.wait()
    except TimeoutError:
        return
