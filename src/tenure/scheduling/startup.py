"""The start of a node: INITIAL jobs first, here or elsewhere, then the node itself; or a stop before that (C8.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tenure.endings import Ending
from tenure.errors import TenureError
from tenure.options import JobAcquireOptions
from tenure.scheduling.crew import RELEASE_LIMIT_S
from tenure.scheduling.node import Node
from tenure.scheduling.ports import Assignment, Port
from tenure.scheduling.run import Occasion


@dataclass(frozen=True, slots=True)
class Initial:
    """Hold one INITIAL job."""

    options: JobAcquireOptions
    callback: Callable[..., Any]


class Startup:
    """Bring a node up, once."""

    def __init__(self, port: Port, node: Node, initials: Mapping[str, Initial], wait: timedelta) -> None:
        self._port = port
        self._node = node
        self._assignments = {
            code: Assignment(Occasion(code=code, run_key=None, scheduled_at=None), initial.callback, None, _no_ending)
            for code, initial in initials.items()
        }
        self._initials = initials
        self._wait = wait
        self._forced = asyncio.Event()

    async def run(self) -> None:
        """Run the INITIAL jobs one after the other, or wait for who does; then start the node."""
        for code, initial in self._initials.items():
            await self._port.run_initial(initial.options, self._assignments[code], self._wait)
        await self._node.start()

    async def run_unless(self, stop: asyncio.Event, grace_s: float) -> bool:
        """Do so, unless told to stop before: then what runs here has the time of grace, others are not waited for."""
        starting = asyncio.create_task(self.run())
        stopping, forced = asyncio.create_task(stop.wait()), asyncio.create_task(self._forced.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done() and (here := self._begun()):
                for assignment in here:
                    assignment.stop()
                await asyncio.wait({starting, forced}, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            forced.cancel()
            await self._give_up(starting)
        if starting.cancelled() or not starting.done():
            return False
        starting.result()
        return True

    def force(self) -> None:
        """End the time of grace now (C10.8)."""
        self._forced.set()

    def _begun(self) -> list[Assignment]:
        return [assignment for assignment in self._assignments.values() if assignment.run is not None]

    async def _give_up(self, starting: asyncio.Task[None]) -> None:
        if starting.done():
            return
        begun = self._begun()
        for assignment in self._assignments.values():
            assignment.withdraw()
        for assignment in begun:
            with suppress(TenureError):
                await self._port.release(assignment, starting)
        starting.cancel()
        await asyncio.wait({starting}, timeout=RELEASE_LIMIT_S)


def _no_ending(_error: BaseException | None, _value: Any) -> Ending:
    return Ending()
