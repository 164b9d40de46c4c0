"""Run nodes of either scheduler in threads of this process, each with a service of its own; hear what they tell."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeVar
from uuid import uuid4

from tenure import AsyncJobSchedulerService, JobSchedulerService
from tenure.clock import boot_s
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Every, JobRun, Schedule, Scheduler, operations
from tenure.scheduling.events import Event
from tenure.scheduling.statements import SchedulingStatements
from tests.support.rows import TABLE, execute
from tests.support.scheduling import JOBS

Kind = Literal["AsyncScheduler", "Scheduler"]
KINDS: tuple[Kind, ...] = ("AsyncScheduler", "Scheduler")
Work: TypeAlias = Callable[[JobRun], Any]
"""A callback for both kinds: a plain function, or a generator function, which pauses where it yields."""

E = TypeVar("E", bound=Event)

SECOND = timedelta(seconds=1)
RARE = Every(timedelta(days=30))
"""A schedule whose next tick is far: what runs is what a test has made due."""
PAUSE_S = 0.005


def nothing(run: JobRun) -> None:
    """Do nothing."""


class Node:
    """One node of the wanted kind: register work, start it, and ask what it told."""

    def __init__(self, url: str, kind: Kind, label: str, **settings: Any) -> None:
        self.kind = kind
        self.told: list[Event] = []
        given = {"poll": SECOND / 10, "drain": 10 * SECOND, "initial_wait": 20 * SECOND, "retention": None, **settings}
        self.service: Any
        self.scheduler: Any
        if kind == "AsyncScheduler":
            self.service = AsyncJobSchedulerService(url, owner_label=label)
            self.scheduler = AsyncScheduler(self.service, **given)
        else:
            self.service = JobSchedulerService(url, owner_label=label)
            self.scheduler = Scheduler(self.service, **given)
        self.scheduler.listen(self.told.append)
        self._stop: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._live, name=f"test-{label}", daemon=True)
        self._started: Future[None] = Future()

    def job(self, code: str, work: Work, schedule: Schedule = RARE, **rules: Any) -> None:
        """Register a job, which is never too late unless a test says so."""
        given = {"lease": 2 * SECOND, "max_lateness": None, "overlap": "allow", **rules}
        self.scheduler.job(code, schedule=schedule, **given)(self._callback(work))

    def initial(self, code: str, work: Work) -> None:
        """Register what runs once for ever."""
        self.scheduler.initial(code, lease=2 * SECOND)(self._callback(work))

    def start(self) -> Node:
        """Start, and wait until it has; raises what the start raised."""
        self.begin()
        self._started.result(30)
        return self

    def begin(self) -> None:
        """Start, without waiting for it."""
        self._thread.start()

    @property
    def is_started(self) -> bool:
        """Say whether the start has come to its end."""
        return self._started.done() and self._started.exception() is None

    def stop(self) -> None:
        """Stop, and wait for the end."""
        self.ask_to_stop()
        if self._thread.ident is not None:
            self._thread.join(30)
            assert not self._thread.is_alive(), "the node has not ended"

    def ask_to_stop(self) -> None:
        """Stop, without waiting for the end."""
        if self._stop is not None:
            with suppress(RuntimeError):  # its loop has ended
                self._stop()

    def heard(self, kind: type[E], code: str | None = None) -> list[E]:
        """Give the events of one kind, those about one job if it is given."""
        found = [event for event in list(self.told) if isinstance(event, kind)]
        return [event for event in found if code is None or getattr(event, "code", None) == code]

    def _live(self) -> None:
        try:
            if self.kind == "AsyncScheduler":
                asyncio.run(self._live_on_a_loop())
            else:
                self._live_blocking()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _live_on_a_loop(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        async with self.service, self.scheduler:
            self._started.set_result(None)
            await stop.wait()

    def _live_blocking(self) -> None:
        stop = threading.Event()
        self._stop = stop.set
        with self.service, self.scheduler:
            self._started.set_result(None)
            stop.wait()

    def _callback(self, work: Work) -> Callable[..., Any]:
        async def awaited(run: AsyncJobRun) -> Any:
            steps = work(run)
            if not isinstance(steps, Generator):
                return steps
            try:
                while True:
                    next(steps)
                    await asyncio.sleep(PAUSE_S)
            except StopIteration as end:
                return end.value
            finally:
                steps.close()

        def called(run: JobRun) -> Any:
            steps = work(run)
            if not isinstance(steps, Generator):
                return steps
            try:
                while True:
                    next(steps)
                    time.sleep(PAUSE_S)
                    run.check()
            except StopIteration as end:
                return end.value
            finally:
                steps.close()

        return awaited if self.kind == "AsyncScheduler" else called


MakeNode: TypeAlias = Callable[..., Node]


def standing_by(make_node: MakeNode, **rules: Any) -> Node:
    """Start node-b, which takes up the runs of the job j that others leave, and has nothing to do in them."""
    node = make_node("node-b")
    node.job("j", nothing, **rules)
    return node.start()


@contextmanager
def nodes_of(url: str, kind: Kind) -> Iterator[MakeNode]:
    """Make nodes, and stop them all at the end."""
    made: list[Node] = []

    def make(label: str = "node-a", *, url: str = url, **settings: Any) -> Node:
        made.append(Node(url, kind, label, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for node in made:
            node.ask_to_stop()
        for node in made:
            node.stop()


def known_before(url: str, code: str, ticks: int, schedule: Schedule = RARE) -> list[datetime]:
    """Have a job be known since before its last ticks, as after a downtime; give those ticks, oldest first."""
    missed: list[datetime] = []
    watermark = datetime.now(UTC) + timedelta(milliseconds=1)
    while len(missed) <= ticks:
        before = schedule.previous(watermark)
        assert before is not None
        missed.insert(0, before)
        watermark = before
    execute(
        url,
        f'INSERT INTO {JOBS} ("code", "schedule", "timezone", "fingerprint", "policy", "knownSince", "watermark") '
        "VALUES (%s, %s, %s, %s, '{}', %s, %s)",
        code, schedule.text, schedule.timezone, schedule.fingerprint, missed[0], missed[0],
    )  # fmt: skip
    return missed[1:]


def rows(url: str, code: str) -> list[tuple[Any, ...]]:
    """Give the runs of a job, oldest tick first: tick, status, outcome, attempt."""
    return execute(
        url,
        f'SELECT "scheduledAt", "status"::text, "outcome", "attempt" FROM {TABLE} WHERE "code" = %s ORDER BY 1',
        code,
    )


def outcomes(url: str, code: str) -> list[tuple[datetime, str]]:
    """Give how each tick of a job ended, oldest first: its outcome, or its status if it has none yet."""
    return [(tick, outcome or status) for tick, status, outcome, _ in rows(url, code)]


def ask(url: str, what: str, *values: Any, **named: Any) -> Any:
    """Do as an operator does, over a service that belongs to nobody under test."""
    with JobSchedulerService(url) as service:
        statements = SchedulingStatements(service.table)
        operation: Any = getattr(operations, what)
        return service.perform(operation(statements, *values, **named, now_boot_s=boot_s()))


def trigger(url: str, code: str, at: datetime | None = None) -> str:
    """Ask for a run by hand, and give its key."""
    key = f"manual:{uuid4().hex}"
    told = ask(url, "trigger", code, key, at, owner_token=uuid4())
    assert told.known
    assert told.new
    return key
