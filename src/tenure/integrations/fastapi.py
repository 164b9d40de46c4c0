"""FastAPI: a service, and a scheduler if you like, that live as long as the application does.

For the application and its path operations::

    from typing import Annotated
    from fastapi import Depends, FastAPI
    from tenure import AsyncJobSchedulerService, JobAcquireOptions
    from tenure.integrations.fastapi import JobSchedulerModule, JobSchedulerModuleOptions

    jobs = JobSchedulerModule.for_root(JobSchedulerModuleOptions(database="postgresql://app@db/shop"))
    Jobs = Annotated[AsyncJobSchedulerService, Depends(jobs.service)]
    app = FastAPI(lifespan=jobs.lifespan)

    @app.post("/reports/{day}")
    async def report(day: str, service: Jobs) -> dict[str, bool]:
        done = await service.run_exclusive(JobAcquireOptions(code="report", run_key=day), write_report)
        return {"written_here": done.acquired}

With a lifespan of your own, enter it there: ``async with jobs.lifespan(app): ...``. Nothing here imports FastAPI: it
works with any framework that has lifespans, and dependencies that are called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, TypeAlias

from tenure import AsyncJobSchedulerService, InvalidJobOptionsError, JobServiceStateError
from tenure.drivers import AsyncDatabase, SyncDatabase
from tenure.scheduling import AsyncScheduler
from tenure.statements import DEFAULT_SCHEMA, DEFAULT_TABLE

Opened: TypeAlias = Callable[[], "AsyncDatabase | Awaitable[AsyncDatabase]"]
"""Gives what to connect by: a pool that belongs to the loop, say, opened when the application starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSchedulerModuleOptions:
    """Say how an application's service is made; as the parameters of `AsyncJobSchedulerService`, and two more.

    - `database`, or a function (a coroutine function, too) that gives it at each start; what it gives is not closed
      here.
    - `migrate`: whether the start applies the migrations that are missing (C9.1); that needs a role that may create.
    - `scheduler`: makes the scheduler of the service, with its jobs; it starts with the application, INITIAL jobs
      first, and stops with it (C10.8). Every process of the application has one; each tick runs on one of them.
    """

    database: AsyncDatabase | Opened | None = field(default=None, repr=False)
    schema: str = DEFAULT_SCHEMA
    table: str = DEFAULT_TABLE
    owner_label: str | None = None
    heartbeat_database: SyncDatabase | AsyncDatabase | None = field(default=None, repr=False)
    migrate: bool = False
    scheduler: Callable[[AsyncJobSchedulerService], AsyncScheduler] | None = None


class JobSchedulerModule:
    """Hold an application's service from its start to its end; made by `for_root`, once for each table of runs."""

    def __init__(self, options: JobSchedulerModuleOptions) -> None:
        self.options = options
        self._service: AsyncJobSchedulerService | None = None
        self._scheduler: AsyncScheduler | None = None

    @classmethod
    def for_root(cls, options: JobSchedulerModuleOptions) -> JobSchedulerModule:
        """Make it, where the application is made; nothing is connected before the application starts."""
        return cls(options)

    def __repr__(self) -> str:
        state = "not started" if self._service is None else "started"
        return f"<{type(self).__name__} {self.options.schema}.{self.options.table}, {state}>"

    @asynccontextmanager
    async def lifespan(self, _app: Any) -> AsyncGenerator[None]:
        """Run the service, and the scheduler if there is one, for as long as the application: `FastAPI(lifespan=...)`.

        The end waits for callbacks as long as the scheduler's `drain` says, then releases their runs. The start raises
        what the scheduler's does: `JobDatabaseError` for a missing table or grant, so that the process does not serve.
        """
        if self._service is not None:
            raise JobServiceStateError("The module runs already: make one with for_root for each application.")
        async with AsyncExitStack() as stack:
            stack.callback(self._forget)
            self._service = await stack.enter_async_context(await self._made())
            if self.options.migrate:
                await self._service.migrate()
            if self.options.scheduler is not None:
                self._scheduler = self._scheduler_of(self._service)
                await stack.enter_async_context(self._scheduler)
            yield

    async def service(self) -> AsyncJobSchedulerService:
        """Give the service of the running application: a dependency, `Depends(jobs.service)`.

        Raises `JobServiceStateError` where the application was not started with `lifespan`.
        """
        if self._service is None:
            raise JobServiceStateError(
                "The application has no running service. Start it with FastAPI(lifespan=jobs.lifespan), or enter "
                "jobs.lifespan(app) in a lifespan of your own; test clients run it only in a with block."
            )
        return self._service

    def healthy(self) -> bool:
        """Say whether the application is started and its scheduler, if there is one, turns: for a health check."""
        return self._service is not None and (self._scheduler is None or self._scheduler.healthy())

    async def _made(self) -> AsyncJobSchedulerService:
        options = self.options
        database = options.database
        if callable(database):
            given = database()
            database = await given if isawaitable(given) else given
        return AsyncJobSchedulerService(
            database,
            schema=options.schema,
            table=options.table,
            owner_label=options.owner_label,
            heartbeat_database=options.heartbeat_database,
        )

    def _scheduler_of(self, service: AsyncJobSchedulerService) -> AsyncScheduler:
        assert self.options.scheduler is not None, "it was looked at before"
        scheduler = self.options.scheduler(service)
        if scheduler.service is not service:
            raise InvalidJobOptionsError(
                "scheduler= gave a scheduler of another service. Make it with the one that it is called with."
            )
        return scheduler

    def _forget(self) -> None:
        self._service = self._scheduler = None
