"""Every kind of database that a service takes, made from a URL: what the scenarios are played over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import django  # type: ignore[import-untyped]
from django.conf import settings  # type: ignore[import-untyped]
from django.db import connections as django_connections  # type: ignore[import-untyped]
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

Made = tuple[Any, Callable[[], Any]]
"""A database, and what closes it."""


@dataclass(frozen=True)
class Kind:
    """Make a database from a URL; `closes` says whether the closing is awaited."""

    name: str
    make: Callable[[str], Made]
    is_async: bool

    def __str__(self) -> str:
        return self.name


def _nothing() -> None:
    return None


def address(url: str, driver: str) -> Any:
    """Give the URL as SQLAlchemy writes it."""
    return make_url(url).set(drivername=f"postgresql+{driver}")


def _pool(url: str) -> Made:
    pool: ConnectionPool[Any] = ConnectionPool(url, min_size=0, max_size=8, open=True)
    return pool, lambda: pool.close(timeout=1)


def _engine(url: str, **given: Any) -> Made:
    engine = create_engine(address(url, "psycopg"), **given)
    return engine, engine.dispose


def django_alias(url: str) -> str:
    """Have Django know that database, and give its alias."""
    if not settings.configured:
        settings.configure()
        django.setup()
    parts = conninfo_to_dict(url)
    alias = f"tenure_{parts['user']}_{parts['dbname']}_{parts['port']}"
    named = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    found = {"ENGINE": "django.db.backends.postgresql", **{key: parts.get(name, "") for key, name in named.items()}}
    if alias not in django_connections.databases:
        django_connections.databases[alias] = django_connections.configure_settings({"default": found, alias: found})[
            alias
        ]
    return alias


def _django(url: str) -> Made:
    return django_connections[django_alias(url)], _nothing


def _async_pool(url: str) -> Made:
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(url, min_size=0, max_size=8, open=False)
    return pool, lambda: pool.close(timeout=1)


def _asyncpg(url: str) -> Made:
    pool = asyncpg.create_pool(url, min_size=0, max_size=8)

    async def close() -> None:
        with suppress(asyncpg.InterfaceError):  # never used, so never initialised
            pool.terminate()

    return pool, close


def _async_engine(url: str, driver: str) -> Made:
    engine = create_async_engine(address(url, driver))

    async def close() -> None:
        await engine.dispose()

    return engine, close


BLOCKING = [
    Kind("string", lambda url: (url, _nothing), is_async=False),
    Kind("psycopg-pool", _pool, is_async=False),
    Kind("engine", _engine, is_async=False),
    Kind("engine-null", lambda url: _engine(url, poolclass=NullPool), is_async=False),
    Kind("django", _django, is_async=False),
]


async def _nothing_async() -> None:
    return None


ON_LOOP = [
    Kind("string", lambda url: (url, _nothing_async), is_async=True),
    Kind("psycopg-pool", _async_pool, is_async=True),
    Kind("asyncpg-pool", _asyncpg, is_async=True),
    Kind("engine-psycopg", lambda url: _async_engine(url, "psycopg"), is_async=True),
    Kind("engine-asyncpg", lambda url: _async_engine(url, "asyncpg"), is_async=True),
    Kind("django", lambda url: (_django(url)[0], _nothing_async), is_async=True),
]
