"""How statements reach PostgreSQL: one small interface, one file a driver, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tenure.operations import Call
from tenure.statements import Table

if TYPE_CHECKING:
    import psycopg
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

Rows = Sequence[tuple[Any, ...]]
SyncDatabase: TypeAlias = "str | ConnectionPool[Any]"
AsyncDatabase: TypeAlias = "str | AsyncConnectionPool[Any]"
Administrator: TypeAlias = "Callable[[], AbstractContextManager[psycopg.Connection[Any]]]"
"""Opens a blocking connection for schema work, in autocommit; its errors become `JobDatabaseError`."""


class Link(Protocol):
    """Be one connection of its own, for the keeper; `fetch` raises `JobDatabaseError`, after which it is closed."""

    async def fetch(self, call: Call, *, limit_s: float) -> Rows: ...
    def cut(self) -> None: ...
    async def close(self) -> None: ...


class Connector(Protocol):
    """Open connections that belong to nobody else."""

    async def link(self, *, limit_s: float) -> Link:
        """Open a connection for the keeper; raises `JobDatabaseError`."""
        ...

    @property
    def given(self) -> bool:
        """Say whether the pool belongs to the caller, who alone may close it, and who must not fork with it."""
        ...


class Driver(Connector, Protocol):
    """Send a call and give its rows, blocking.

    `fresh` asks for a connection of its own, opened for this call: what a retry uses. Every error is a
    `JobDatabaseError` that says whether the database may have changed; a connection is never left busy.
    """

    def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows: ...
    def administrator(self) -> Administrator: ...
    def close(self) -> None: ...


class AsyncDriver(Connector, Protocol):
    """Send a call and give its rows, on the running loop; as `Driver` otherwise."""

    async def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows: ...
    async def administrator(self) -> Administrator: ...
    async def close(self) -> None: ...


def resolve(database: SyncDatabase | None, table: Table) -> Driver:
    """Choose the driver for what a sync service was given; refuse what is not known, with the list of what is."""
    from psycopg_pool import ConnectionPool

    from tenure.drivers.psycopg import PsycopgDriver

    if database is None or isinstance(database, str | ConnectionPool):
        return PsycopgDriver(database or "", table)
    raise TypeError(_unknown(database, "psycopg_pool.ConnectionPool"))


def resolve_async(database: AsyncDatabase | None, table: Table) -> AsyncDriver:
    """Choose the driver for what an async service was given; refuse what is not known, with the list of what is."""
    from psycopg_pool import AsyncConnectionPool

    from tenure.drivers.psycopg import AsyncPsycopgDriver

    if database is None or isinstance(database, str | AsyncConnectionPool):
        return AsyncPsycopgDriver(database or "", table)
    raise TypeError(_unknown(database, "psycopg_pool.AsyncConnectionPool"))


def _unknown(database: object, pool: str) -> str:
    return (
        f"database must be a connection string or URL, a {pool}, or None for libpq's environment; "
        f"not {type(database).__module__}.{type(database).__qualname__}."
    )
