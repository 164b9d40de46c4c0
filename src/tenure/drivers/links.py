"""Connections of their own over psycopg: the keeper's, and those for schema work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from tenure.drivers import Administrator, Rows
from tenure.drivers.limits import Limit
from tenure.drivers.problems import Complaint, problem, unreachable
from tenure.drivers.recipes import Recipe
from tenure.drivers.sending import AsyncSender
from tenure.operations import Call
from tenure.statements import Table


def administrator(connect: Callable[[], psycopg.Connection[Any]], table: Table) -> Administrator:
    """Give what opens a connection for schema work, in autocommit."""

    @contextmanager
    def administer() -> Generator[psycopg.Connection[Any]]:
        connection = connect()
        connection.autocommit = True
        connection.row_factory, connection.cursor_factory = tuple_row, psycopg.RawCursor
        with connection:
            try:
                yield connection
            except psycopg.Error as error:
                told = Complaint(
                    error.sqlstate,
                    error.diag.message_primary or str(error),
                    connection.info.user,
                    database=connection.info.dbname,
                    migrates=True,
                )
                raise problem(told, table) from None

    return administer


class PsycopgLink:
    """Be one connection of its own, for the keeper; see `Link`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], table: Table) -> None:
        self._connection = connection
        self._sender = AsyncSender(table)

    @classmethod
    async def open(cls, recipe: Recipe, table: Table, limit_s: float) -> PsycopgLink:
        """Connect, or raise `JobDatabaseError`."""
        return cls(await connect_async(recipe, limit_s), table)

    async def fetch(self, call: Call, *, limit_s: float) -> Rows:
        """Send a call and give its rows."""
        return await self._sender.fetch(self._connection, call, limit_s)

    def cut(self) -> None:
        """Give the connection up under a call that hangs."""
        if not self._connection.closed:
            Limit(self._connection.fileno(), 0.0).fire()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def connect(recipe: Recipe) -> psycopg.Connection[Any]:
    """Connect in autocommit, or raise `JobDatabaseError`."""
    try:
        return psycopg.connect(recipe.text(), autocommit=True)
    except psycopg.Error as error:
        raise unreachable(str(error)) from None


async def connect_async(recipe: Recipe, limit_s: float) -> psycopg.AsyncConnection[Any]:
    """Connect in autocommit within a time, or raise `JobDatabaseError`."""
    try:
        async with asyncio.timeout(limit_s):
            return await psycopg.AsyncConnection.connect(recipe.text(), autocommit=True)
    except TimeoutError:
        raise unreachable(f"it did not answer within {limit_s:g} s") from None
    except psycopg.Error as error:
        raise unreachable(str(error)) from None
