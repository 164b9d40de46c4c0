"""The two schedulers, on a loop and blocking: jobs are registered here, a `Node` runs them."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, cast

from tenure.errors import InvalidJobOptionsError, JobServiceStateError
from tenure.options import DEFAULT_LEASE_MS, JobAcquireOptions, JobSchedulerType
from tenure.scheduling.events import Listener
from tenure.scheduling.jobs import CatchUp, Job, Retry
from tenure.scheduling.node import Node
from tenure.scheduling.ports import LoopPort, Port, ThreadPort
from tenure.scheduling.retention import Retention, prune_job
from tenure.scheduling.run import AsyncJobRun, JobRun
from tenure.scheduling.schedule import Schedule
from tenure.scheduling.startup import Initial, Startup
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.told import Told, interrupt, join, result_of
from tenure.scheduling.values import Overlap
from tenure.service import AsyncJobSchedulerService, JobSchedulerService

V = TypeVar("V", AsyncJobSchedulerService, JobSchedulerService)
D = TypeVar("D")
A = TypeVar("A", bound=Callable[[AsyncJobRun], Coroutine[Any, Any, object]])
B = TypeVar("B", bound=Callable[[JobRun], object])

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
KEEP: Final = Retention()
DEFAULT_RETRY: Final = Retry()
DEFAULT_LEASE: Final = timedelta(milliseconds=DEFAULT_LEASE_MS)


class AsyncRegister(Protocol):
    """Decorate a coroutine function that is given an `AsyncJobRun`; it stays as it is."""

    def __call__(self, callback: A, /) -> A: ...


class Register(Protocol):
    """Decorate a plain function that is given a `JobRun`; it stays as it is."""

    def __call__(self, callback: B, /) -> B: ...


class _Scheduler(Generic[V, D]):
    """Hold what both schedulers know before they start: the service, the jobs and the settings."""

    _on_loop: ClassVar[bool]

    def __init__(
        self,
        jobs: V,
        *,
        poll: timedelta = timedelta(seconds=5),
        max_concurrent_runs: int = 100,
        drain: timedelta = timedelta(seconds=30),
        initial_wait: timedelta = timedelta(hours=1),
        retention: Retention | None = KEEP,
    ) -> None:
        if not timedelta(milliseconds=50) <= poll <= timedelta(hours=1):
            raise InvalidJobOptionsError(f"poll must be 50 milliseconds to 1 hour; {poll} was given.")
        if not isinstance(max_concurrent_runs, int) or max_concurrent_runs < 1:
            raise InvalidJobOptionsError("max_concurrent_runs must be an int of at least 1.")
        self._service: V = jobs
        self._poll_s = poll.total_seconds()
        self._max_concurrent_runs = max_concurrent_runs
        self._drain_for(drain)
        self._initial_wait = initial_wait
        self._jobs: dict[str, Job] = {}
        self._initials: dict[str, Initial] = {}
        self._listeners: list[Listener] = []
        self._node: Node | None = None
        self._startup: Startup | None = None
        if retention is not None:
            batches = retention.batches
            self.add(prune_job(self._pruning(lambda: batches(SchedulingStatements(jobs.table)))))

    def __repr__(self) -> str:
        state = "not started" if self._node is None else "started"
        return f"<{type(self).__name__} of {len(self._jobs)} jobs, {state}>"

    @property
    def service(self) -> V:
        """Give the service that it was made with."""
        return self._service

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Give the jobs that are registered, in their order; first our own that removes old runs, if it does."""
        return tuple(self._jobs.values())

    def add(self, job: Job) -> None:
        """Register a job, before the start.

        Raises `InvalidJobOptionsError` if its code is registered already, `TypeError` if its callback is of the other
        scheduler's kind, and `JobServiceStateError` after the start.
        """
        self._check_not_started()
        self._check_callback(job.callback)
        if job.code in self._jobs:
            raise InvalidJobOptionsError(f"The job {job.code!r} is registered already. Give each job its own code.")
        self._jobs[job.code] = job

    def job(
        self,
        code: str,
        *,
        schedule: Schedule,
        name: str | None = None,
        lease: timedelta = DEFAULT_LEASE,
        heartbeat: timedelta | None = None,
        retry: Retry = DEFAULT_RETRY,
        catch_up: CatchUp = "latest",
        catch_up_limit: int = 100,
        max_lateness: timedelta | None = timedelta(days=1),
        overlap: Overlap = "skip",
        timeout: timedelta | None = None,
        jitter: timedelta = timedelta(0),
    ) -> D:
        """Register the decorated function for a schedule, under the rules of `Job`; raises what `Job` and `add` do.

        It is called with its run, and a mapping that it returns is kept as the run's data: a JSON object. Returning
        is SUCCESS; raising anything is FAIL, and tried again by `retry`.
        """
        job = partial(
            Job, code=code, schedule=schedule, name=name, lease=lease, heartbeat=heartbeat, retry=retry,
            catch_up=catch_up, catch_up_limit=catch_up_limit, max_lateness=max_lateness, overlap=overlap,
            timeout=timeout, jitter=jitter,
        )  # fmt: skip

        def register(callback: Callable[..., Any]) -> Callable[..., Any]:
            self.add(job(callback=callback))
            return callback

        return cast(D, register)

    def initial(self, code: str, *, lease: timedelta = DEFAULT_LEASE) -> D:
        """Register the decorated function to run once for ever, over all nodes, before any job here ticks (C8.2).

        The start waits for it, at most `initial_wait`, wherever it runs; what it raises here comes out of the start,
        and the next node to start tries again. Its run has no tick.
        """

        def register(callback: Callable[..., Any]) -> Callable[..., Any]:
            self._check_not_started()
            self._check_callback(callback)
            options = JobAcquireOptions(
                code=code, type=JobSchedulerType.INITIAL, lease_ms=lease // timedelta(milliseconds=1)
            )
            if options.code in self._initials:
                raise InvalidJobOptionsError(f"The INITIAL job {code!r} is registered already.")
            self._initials[options.code] = Initial(options, callback)
            return callback

        return cast(D, register)

    def listen(self, listener: Listener) -> None:
        """Be told what happens on this node, as one of `tenure.scheduling.events`; before the start.

        Listeners are called one after the other on the scheduler's loop: hand on what takes time. One that raises is
        logged, and harms nobody.
        """
        self._check_not_started()
        self._listeners.append(listener)

    def healthy(self) -> bool:
        """Say whether this node is started and its loops turn: for a health check.

        False before the start and from the stop on, once the database was not heard of for 30 s (or three polls, if
        that is longer), or when a loop has ended.
        """
        return self._node is not None and self._node.healthy()

    def _pruning(self, batches: Callable[[], Any]) -> Callable[..., Any]:
        raise NotImplementedError

    def _check_callback(self, callback: Callable[..., Any]) -> None:
        if inspect.iscoroutinefunction(callback) is not self._on_loop:
            wanted, other = (
                ("a coroutine function", "Scheduler") if self._on_loop else ("a plain function", "AsyncScheduler")
            )
            raise TypeError(f"{type(self).__name__} runs {wanted}; use {other} for the other kind.")

    def _drain_for(self, drain: timedelta) -> None:
        if drain < timedelta(0):
            raise InvalidJobOptionsError(f"drain must not be negative; {drain} was given.")
        self._drain_s = drain.total_seconds()

    def _check_not_started(self) -> None:
        if self._node is not None:
            raise JobServiceStateError("The scheduler has started. Register jobs and listeners before.")

    def _prepare(self, port: Port) -> Startup:
        self._check_not_started()
        self._node = Node(
            port,
            self._jobs.values(),
            poll_s=self._poll_s,
            max_concurrent_runs=self._max_concurrent_runs,
            listeners=self._listeners,
        )
        self._startup = Startup(port, self._node, self._initials, self._initial_wait)
        return self._startup

    async def _live(self, port: Port, stop: asyncio.Event, started: Callable[[], object] = lambda: None) -> None:
        """Start, live until told to stop, and stop."""
        if await self._prepare(port).run_unless(stop, self._drain_s):
            started()
            try:
                await stop.wait()
            finally:
                await self._halt()

    async def _halt(self) -> None:
        if self._node is not None:
            await self._node.stop(self._drain_s)

    def _force(self) -> None:
        if self._node is not None and self._startup is not None:
            self._startup.force()
            self._node.force()


class AsyncScheduler(_Scheduler[AsyncJobSchedulerService, AsyncRegister]):
    """Run jobs at their ticks, each tick on one node, from the running loop (C10).

    Register coroutine functions with `job` and `initial`, then `await scheduler.run()`, or `async with scheduler:`
    beside a server of your own: its body begins when all INITIAL jobs are done. Every node runs the same code; none
    leads. A scheduler starts once. The service is yours: close it after the scheduler has stopped.

    - `poll`, 50 milliseconds to 1 hour: how often, on average, this node says that it lives and looks for what others
      left. It is no bound on how late a tick starts.
    - `max_concurrent_runs`: how many callbacks run here at once. Further ticks run elsewhere, or wait for a free place.
    - `drain`: how long callbacks may go on after a stop. Then they are cancelled and their runs released.
    - `initial_wait`: how long the start waits for each INITIAL job; then it raises `WaitTimeoutError`.
    - `retention`: how long ended runs are kept; `None` removes none.

    The start raises what somebody must mend (`JobDatabaseError` for a missing table or grant); it waits for a database
    that is away, unless there are INITIAL jobs, which raise it.
    """

    _on_loop = True
    _stop: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        await self._prepare(LoopPort(self._service)).run()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Claim nothing more at once, let callbacks end for `drain`, release what is left (C10.8); `run` ends, too."""
        if self._stop is not None:
            self._stop.set()
        await self._halt()

    async def run(self, *, drain: timedelta | None = None) -> None:
        """Run until SIGTERM or SIGINT, or until this is cancelled; then stop. A second signal forces (C10.8).

        `drain` is for who runs a scheduler that others have made: it holds instead of the scheduler's own.
        Forcing ends that time: callbacks are cancelled, and their runs released. A third signal waits for nothing.
        Outside the main thread no signal is heard.
        """
        if drain is not None:
            self._drain_for(drain)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._stop = asyncio.Event()
        told = Told(self._stop.set, self._force, task.cancel)
        heard = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
        for number in heard:
            loop.add_signal_handler(number, told)
        try:
            await self._live(LoopPort(self._service), self._stop)
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    def _pruning(self, batches: Callable[[], Any]) -> Callable[..., Any]:
        async def prune(run: AsyncJobRun) -> dict[str, int]:
            pending = batches()
            while (attempt := pending.next()) is not None:
                run.check()
                pending.note(await self._service.perform(attempt))
            return {"removed": pending.removed}

        return prune


class Scheduler(_Scheduler[JobSchedulerService, Register]):
    """Run jobs at their ticks, each tick on one node, in threads (C10); as `AsyncScheduler` for plain functions.

    `run()` blocks; `with scheduler:` works in the background. Each callback has a thread of its own, which cannot be
    stopped from outside: it looks at `run.check()` and `run.stopping`. One that has not ended after `drain` loses its
    run to another node, and goes on as long as this process lives.
    """

    _on_loop = False
    _thread: threading.Thread | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _stop: asyncio.Event | None = None
    _told_to_stop = False
    _problem: BaseException | None = None

    def __enter__(self) -> Self:
        if not self._begin(Future()):
            raise JobServiceStateError("The scheduler was stopped before it had started.")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Claim nothing more at once, let callbacks end for `drain`, release what is left (C10.8); `run` ends, too."""
        self._tell_to_stop()
        if self._thread is not None:
            self._thread.join()

    def run(self, *, drain: timedelta | None = None) -> None:
        """Run until SIGTERM or SIGINT; then stop. A second signal forces (C10.8). Call it from the main thread.

        `drain` is for who runs a scheduler that others have made: it holds instead of the scheduler's own.
        Forcing ends that time: runs are released, while their callbacks go on until the process ends. A third
        signal raises `KeyboardInterrupt`.
        """
        if drain is not None:
            self._drain_for(drain)
        began: Future[bool] = Future()
        told = Told(self._tell_to_stop, self._tell_to_force, interrupt)
        before = {number: signal.signal(number, lambda _number, _frame: told()) for number in _SIGNALS}
        try:
            if self._begin(began) and self._thread is not None:
                join(self._thread)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._problem is not None:
            raise self._problem

    def _begin(self, began: Future[bool]) -> bool:
        """Start the thread of the loop, and say whether the start came to its end; raise what went wrong there."""
        self._check_not_started()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live_in_thread(began)), name="tenure-scheduler", daemon=True
        )
        self._thread.start()
        return result_of(began)

    async def _live_in_thread(self, began: Future[bool]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._told_to_stop:
            self._stop.set()
        try:
            await self._live(ThreadPort(self._service), self._stop, lambda: began.set_result(True))
        except BaseException as error:  # noqa: BLE001 - it comes out where the start or the run is waited for
            self._problem = error
            if not began.done():
                began.set_exception(error)
        else:
            if not began.done():
                began.set_result(False)

    def _tell_to_stop(self) -> None:
        self._told_to_stop = True
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stop.set)

    def _tell_to_force(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._force)

    def _pruning(self, batches: Callable[[], Any]) -> Callable[..., Any]:
        def prune(run: JobRun) -> dict[str, int]:
            pending = batches()
            while (attempt := pending.next()) is not None:
                run.check()
                pending.note(self._service.perform(attempt))
            return {"removed": pending.removed}

        return prune
