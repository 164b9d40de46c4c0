"""How a node reaches a service of either kind: one loop over the async one, or over the blocking one and threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

from tenure.clock import boot_s
from tenure.endings import Ending, EndingOf
from tenure.errors import JobTimeoutError, TenureError
from tenure.interruption import to_its_end
from tenure.lease import JobAcquired, JobExecutionLease
from tenure.operations import Attempt
from tenure.options import JobAcquireOptions
from tenure.scheduling.run import AsyncJobRun, JobRun, Occasion
from tenure.scheduling.values import Claimed, Outcome
from tenure.service import AsyncJobSchedulerService, JobSchedulerService
from tenure.statements import Table

R = TypeVar("R")
ClaimFor = Callable[[UUID, str], Attempt[Claimed]]


@dataclass(slots=True, eq=False)
class Assignment:
    """Hold one run of a callback on this node, from its claim to its end."""

    occasion: Occasion
    callback: Callable[..., Any]
    timeout_s: float | None
    ending: EndingOf
    run: JobRun | None = field(default=None)
    lease: JobExecutionLease | None = field(default=None)
    won: JobAcquired | None = field(default=None)
    """The lease, if it was won before the run began here; `None` for an INITIAL job."""
    stopping: bool = field(default=False)
    withdrawn: bool = field(default=False)

    def stop(self) -> None:
        """Tell the callback that the node shuts down, now or when it begins."""
        self.stopping = True
        if self.run is not None:
            self.run.stopping = True

    def withdraw(self) -> None:
        """Tell a callback that goes on that its run is not its own any more; one that has not begun never does."""
        self.withdrawn = True
        if self.run is not None:
            self.run.note_released()

    def begin(self, lease: JobExecutionLease, kind: type[JobRun], complete: Callable[..., Any]) -> JobRun:
        """Make what the callback is given."""
        self.lease = lease
        self.run = kind(self.occasion, lease, complete, boot_s, self.timeout_s)
        self.run.stopping = self.stopping
        self.check_not_withdrawn()
        return self.run

    def check_not_withdrawn(self) -> None:
        """Go on, or raise: what a callback that was told so returns, or raises, is no outcome of its run."""
        if self.withdrawn:
            raise ReleasedError("The node has shut down, and given the run back for another one.")


class ReleasedError(Exception):
    """Say that a run is given back, and settles nothing any more here."""


def _as_released(_error: BaseException | None, _value: object) -> Ending:
    return Ending(outcome=Outcome.RELEASED, data={"released": True})


def _not_called() -> None:
    raise ReleasedError


async def _not_awaited() -> None:
    raise ReleasedError


class Port(Protocol):
    """Reach a service from the node's loop."""

    @property
    def table(self) -> Table: ...
    @property
    def owner_label(self) -> str: ...
    async def perform(self, attempt: Attempt[R]) -> R: ...
    async def win(self, claim_for: ClaimFor) -> Claimed: ...
    async def give_back(self, won: JobAcquired) -> None:
        """Free a run that was won, for another node to retry; it counts as released in order."""
        ...

    async def run(self, won: JobAcquired, assignment: Assignment) -> Any: ...
    async def run_initial(self, options: JobAcquireOptions, assignment: Assignment, wait: timedelta) -> Any: ...
    async def release(self, assignment: Assignment, task: asyncio.Task[Any]) -> None:
        """Free the run of a callback that has not ended in time."""
        ...


class LoopPort:
    """Reach an async service on its own loop."""

    def __init__(self, service: AsyncJobSchedulerService) -> None:
        self._service = service

    @property
    def table(self) -> Table:
        """Give the table of runs."""
        return self._service.table

    @property
    def owner_label(self) -> str:
        """Name the node to people."""
        return self._service.owner_label

    async def perform(self, attempt: Attempt[R]) -> R:
        """Bring an operation to its end."""
        return await self._service.perform(attempt)

    async def win(self, claim_for: ClaimFor) -> Claimed:
        """Claim; a cancelled claim gives back what it won."""
        return await self._service.win(claim_for)

    async def give_back(self, won: JobAcquired) -> None:
        """Free a run that was won."""
        with suppress(ReleasedError, TenureError):
            await self._service.run_acquired(won, _not_awaited, ending=_as_released)

    async def run(self, won: JobAcquired, assignment: Assignment) -> Any:
        """Run the callback in this task."""
        return await self._service.run_acquired(won, self._call(assignment), ending=assignment.ending)

    async def run_initial(self, options: JobAcquireOptions, assignment: Assignment, wait: timedelta) -> Any:
        """Run an INITIAL job here, or wait until another node has."""
        return await self._service.run_exclusive(options, self._call(assignment), wait=wait)

    async def release(self, assignment: Assignment, task: asyncio.Task[Any]) -> None:  # noqa: ARG002 - as the other
        """Cancel the callback: its run is recorded as released once it has unwound (C6.6)."""
        task.cancel()

    def _call(self, assignment: Assignment) -> Callable[[JobExecutionLease], Any]:
        async def call(lease: JobExecutionLease) -> Any:
            run = assignment.begin(lease, AsyncJobRun, self._service.complete)
            limit = asyncio.timeout(assignment.timeout_s)
            try:
                async with limit:
                    return await assignment.callback(run)
            except TimeoutError as error:
                if limit.expired() and assignment.timeout_s is not None:
                    raise JobTimeoutError(assignment.timeout_s) from error
                raise

        return call


class ThreadPort:
    """Reach a blocking service from a loop of the scheduler's own; each callback has a thread."""

    def __init__(self, service: JobSchedulerService) -> None:
        self._service = service

    @property
    def table(self) -> Table:
        """Give the table of runs."""
        return self._service.table

    @property
    def owner_label(self) -> str:
        """Name the node to people."""
        return self._service.owner_label

    async def perform(self, attempt: Attempt[R]) -> R:
        """Bring an operation to its end."""
        finished = await to_its_end(asyncio.to_thread(self._service.perform, attempt))
        return finished.result_unless_interrupted()

    async def win(self, claim_for: ClaimFor) -> Claimed:
        """Claim; a cancelled claim gives back what it won."""
        finished = await to_its_end(asyncio.to_thread(self._service.win, claim_for))
        if finished.interruption:
            with suppress(TenureError):
                if (won := finished.result().won) is not None:
                    await to_its_end(self.give_back(won))
            raise finished.interruption
        return finished.result()

    async def give_back(self, won: JobAcquired) -> None:
        """Free a run that was won, whether or not its callback goes on."""

        def give_back() -> None:
            with suppress(ReleasedError, TenureError):
                self._service.run_acquired(won, _not_called, ending=_as_released)

        await asyncio.to_thread(give_back)

    async def run(self, won: JobAcquired, assignment: Assignment) -> Any:
        """Run the callback in a thread; cancelling leaves it there."""
        return await _in_thread(
            lambda: self._service.run_acquired(won, self._call(assignment), ending=assignment.ending)
        )

    async def run_initial(self, options: JobAcquireOptions, assignment: Assignment, wait: timedelta) -> Any:
        """Run an INITIAL job here, or wait until another node has."""
        return await _in_thread(lambda: self._service.run_exclusive(options, self._call(assignment), wait=wait))

    async def release(self, assignment: Assignment, task: asyncio.Task[Any]) -> None:
        """Free the run; the thread goes on, but its lease is lost and settles nothing any more."""
        assignment.withdraw()
        if assignment.won is not None:
            await self.give_back(assignment.won)
        elif assignment.lease is not None:
            await asyncio.to_thread(self._service.release, assignment.lease)
        task.cancel()

    def _call(self, assignment: Assignment) -> Callable[[JobExecutionLease], Any]:
        def call(lease: JobExecutionLease) -> Any:
            run = assignment.begin(lease, JobRun, self._service.complete)
            try:
                return assignment.callback(run)
            finally:
                assignment.check_not_withdrawn()

        return call


async def _in_thread(call: Callable[[], R]) -> R:
    """Run a callback in a daemon thread of its own, which keeps neither others waiting nor the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def tell(value: R | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)  # type: ignore[arg-type] # what the call has returned
        else:
            # neither may leave a thread for the loop: a future refuses the one, the others would end the loop
            kept = isinstance(error, StopIteration | KeyboardInterrupt | SystemExit)
            future.set_exception(RuntimeError(f"The callback raised {type(error).__name__}.") if kept else error)

    def work() -> None:
        told: tuple[R | None, BaseException | None]
        try:
            told = (context.run(call), None)
        except BaseException as error:  # noqa: BLE001 - it is handed to the loop
            told = (None, error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=work, name="tenure-job", daemon=True).start()
    return await future
