"""What all open pages together learn of the database: one query a second, however many look on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tenure.errors import TenureError
from tenure.operating import Overview, RunGlance, RunLife, operations
from tenure.web.source import Source
from tenure.web.views.runs import glance_of, mark_of

EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Show what was known at one beat; the later beat has the larger number."""

    number: int
    overview: Overview | None
    lives: dict[UUID, RunLife] = field(default_factory=dict[UUID, RunLife])
    """Whole lives of runs that somebody looks at, as they were when they last changed."""
    trouble: str | None = None
    """Why the database was not heard this time; what is shown is older."""


class Feed:
    """Ask while somebody looks on, and not otherwise.

    Each second one query is sent: the overview, or, in turn with it, the whole life of a run that somebody looks at and
    that has changed. Belongs to the event loop of its first use.
    """

    def __init__(self, source: Source, every_s: float = EVERY_S) -> None:
        self._source = source
        self._every_s = every_s
        self._seen = Seen(0, None)
        self._next = asyncio.Event()
        self._watchers = 0
        self._runs: Counter[UUID] = Counter()
        self._marks: dict[UUID, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def close(self) -> None:
        """End all streams, so that a server may stop; pages that are open come back to the next one."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._tell(self._seen)

    async def beats(self, run: UUID | None = None, mark: str = "") -> AsyncGenerator[Seen]:
        """Give what is seen, each time anew. Of `run`, which the page shows as of `mark`, the life as it changes."""
        task = self._enter(run, mark)
        # what was seen before anybody looked on is old
        number = self._seen.number if self._seen.overview is None else 0
        try:
            while not self._closed and not task.done():
                if self._seen.number > number:
                    number = self._seen.number
                    yield self._seen
                else:
                    await self._next.wait()
        finally:
            self._leave(run)

    def _enter(self, run: UUID | None, mark: str) -> asyncio.Task[None]:
        self._watchers += 1
        if run is not None:
            self._runs[run] += 1
            if run not in self._seen.lives:  # else the life that is known tells whoever comes what has changed
                self._marks[run] = mark
        if self._task is None or self._task.done():
            self._seen = Seen(self._seen.number, None)
            self._task = asyncio.create_task(self._go_on(), name="tenure-web-feed")
        return self._task

    def _leave(self, run: UUID | None) -> None:
        self._watchers -= 1
        if run is not None:
            self._runs[run] -= 1
            if self._runs[run] <= 0:
                del self._runs[run]
                self._marks.pop(run, None)
                self._seen.lives.pop(run, None)

    async def _go_on(self) -> None:
        life_is_next = False
        try:
            while self._watchers:
                began_s = time.monotonic()
                changed = self._changed() if life_is_next else None
                self._tell(await self._look(changed))
                life_is_next = changed is None
                await asyncio.sleep(max(self._every_s - (time.monotonic() - began_s), self._every_s / 5))
        finally:
            self._tell(self._seen)

    async def _look(self, run: UUID | None) -> Seen:
        number = self._seen.number + 1
        try:
            if run is not None:
                return Seen(number, self._seen.overview, await self._with_life(run))
            overview = await self._source.ask(operations.overview)
            return Seen(number, overview, self._seen.lives)
        except TenureError as error:
            return Seen(number, self._seen.overview, self._seen.lives, str(error))

    async def _with_life(self, run: UUID) -> dict[UUID, RunLife]:
        life = await self._source.ask(operations.life, run)
        if life is None:  # it was removed: there is nothing more to learn of it
            self._marks.pop(run, None)
            return self._seen.lives
        self._marks[run] = mark_of(glance_of(life.run))
        return {**self._seen.lives, run: life}

    def _changed(self) -> UUID | None:
        """Find a run that somebody looks at and whose life has gone on."""
        if self._seen.overview is None or not self._marks:
            return None
        for glance in self._glances(self._seen.overview):
            if self._marks.get(glance.id, mark_of(glance)) != mark_of(glance):
                return glance.id
        return None

    def _glances(self, overview: Overview) -> list[RunGlance]:
        found = {lease.run.id: lease.run for lease in overview.leases if lease.run.id in self._marks}
        for job in overview.jobs:
            found.update({run.id: run for run in (*job.recent, *job.unfinished) if run.id in self._marks})
        return list(found.values())

    def _tell(self, seen: Seen) -> None:
        self._seen = seen
        told, self._next = self._next, asyncio.Event()
        told.set()
