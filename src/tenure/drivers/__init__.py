"""How statements reach PostgreSQL: one small interface, one file a driver, and the choice among them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from tenure.operations import Call
from tenure.statements import Table

if TYPE_CHECKING:
    import psycopg
    from psycopg_pool import AsyncConnectionPool, ConnectionPool
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

Rows = Sequence[tuple[Any, ...]]


class DjangoConnection(Protocol):
    """Be `django.db.connection` or `django.db.connections["alias"]`, of which the settings are used."""

    @property
    def alias(self) -> str: ...
    @property
    def settings_dict(self) -> Any: ...


class AsyncpgPool(Protocol):
    """Be an `asyncpg.Pool`."""

    def acquire(self, *, timeout: float | None = None) -> Any: ...
    async def release(self, connection: Any, *, timeout: float | None = None) -> Any: ...  # noqa: ASYNC109 - as it is
    async def expire_connections(self) -> Any: ...


SyncDatabase: TypeAlias = "str | ConnectionPool[Any] | Engine | DjangoConnection"
AsyncDatabase: TypeAlias = "str | AsyncConnectionPool[Any] | AsyncEngine | AsyncpgPool | DjangoConnection"
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

    @property
    def stays_on_loop(self) -> bool:
        """Say whether links work on the service's own loop only, so that no other thread can have one."""
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
    if _is_one_of(database, _DJANGO):
        from tenure.drivers.django import django_source

        return PsycopgDriver(django_source(database), table)
    if _is_one_of(database, _ENGINE):
        from tenure.drivers.sqlalchemy import EngineDriver

        return EngineDriver(cast("Any", database), table)
    if _is_async(database):
        raise TypeError(f"JobSchedulerService is blocking. Give {_named(database)} to AsyncJobSchedulerService.")
    raise TypeError(_unknown(database, "psycopg_pool.ConnectionPool, a SQLAlchemy Engine over postgresql+psycopg"))


def resolve_async(database: AsyncDatabase | None, table: Table) -> AsyncDriver:
    """Choose the driver for what an async service was given; refuse what is not known, with the list of what is."""
    from psycopg_pool import AsyncConnectionPool

    from tenure.drivers.psycopg import AsyncPsycopgDriver

    if database is None or isinstance(database, str | AsyncConnectionPool):
        return AsyncPsycopgDriver(database or "", table)
    if _is_one_of(database, _DJANGO):
        from tenure.drivers.django import django_source

        return AsyncPsycopgDriver(django_source(database), table)
    if _is_one_of(database, _ASYNC_ENGINE):
        from tenure.drivers.sqlalchemy import AsyncEngineDriver

        return AsyncEngineDriver(cast("Any", database), table)
    if _is_one_of(database, _ASYNCPG):
        from tenure.drivers.asyncpg import AsyncpgDriver

        return AsyncpgDriver(database, table)
    if _is_sync(database):
        raise TypeError(f"AsyncJobSchedulerService runs on a loop. Give {_named(database)} to JobSchedulerService.")
    known = (
        "psycopg_pool.AsyncConnectionPool, an asyncpg Pool, a SQLAlchemy AsyncEngine over postgresql+psycopg or "
        "postgresql+asyncpg"
    )
    raise TypeError(_unknown(database, known))


def resolve_connector(database: SyncDatabase | AsyncDatabase | None, table: Table) -> Driver | AsyncDriver:
    """Choose the driver whose links a renewal thread may use, of either kind; refuse one that stays on its loop."""
    if _is_one_of(database, _ASYNCPG):
        raise TypeError("heartbeat_database must be usable from a thread, which an asyncpg pool is not.")
    return resolve_async(cast("Any", database), table) if _is_async(database) else resolve(cast("Any", database), table)


_Kinds: TypeAlias = "tuple[tuple[str, str], ...]"
_ENGINE: _Kinds = (("sqlalchemy.engine", "Engine"),)
_ASYNC_ENGINE: _Kinds = (("sqlalchemy.ext.asyncio", "AsyncEngine"),)
_ASYNCPG: _Kinds = (("asyncpg.pool", "Pool"),)
_DJANGO: _Kinds = (
    ("django.utils.connection", "ConnectionProxy"),
    ("django.db.backends.base.base", "BaseDatabaseWrapper"),
)


def _is_one_of(database: object, kinds: _Kinds) -> bool:
    """Look in what is loaded: nothing is imported for those who do not use it."""
    for module, name in kinds:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(database, kind):
            return True
    return False


def _is_async(database: object) -> bool:
    from psycopg_pool import AsyncConnectionPool

    return isinstance(database, AsyncConnectionPool) or _is_one_of(database, (*_ASYNC_ENGINE, *_ASYNCPG))


def _is_sync(database: object) -> bool:
    from psycopg_pool import ConnectionPool

    return isinstance(database, ConnectionPool) or _is_one_of(database, _ENGINE)


def _named(database: object) -> str:
    return f"{type(database).__module__}.{type(database).__qualname__}"


def _unknown(database: object, pools: str) -> str:
    return (
        f"database must be a connection string or URL, a {pools}, a Django connection (django.db.connection or "
        f'connections["alias"]), or None for libpq\'s environment; not {_named(database)}.'
    )
