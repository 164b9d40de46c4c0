"""How calls are sent over an open psycopg connection, whoever opened it: blocking and on a loop, side by side.

In autocommit, at READ COMMITTED whatever the database's default is (C4.5), and nothing of the session is changed
(C4.8). The connection is left as it was found.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from tenure.drivers import Rows
from tenure.drivers.channels import TRAITS, Channel, Channels, Traits, complaint_of, plain, socket_of
from tenure.drivers.limits import limited, limited_on_loop
from tenure.drivers.problems import problem
from tenure.operations import Call
from tenure.statements import Table

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


class Sender:
    """Send calls over blocking connections, remembering the traits of each."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._channels: Channels[psycopg.Connection[Any], psycopg.RawCursor[Any]] = Channels()

    def fetch(self, connection: psycopg.Connection[Any], call: Call, limit_s: float) -> Rows:
        """Send a call and give its rows; raises `JobDatabaseError`."""
        with limited(socket_of(connection), limit_s) as limit:
            try:
                return self._execute(connection, call)
            except psycopg.Error as error:
                raise problem(complaint_of(error, connection, limit, limit_s), self._table) from None

    def _execute(self, connection: psycopg.Connection[Any], call: Call) -> Rows:
        autocommit = connection.autocommit
        if not autocommit:
            connection.autocommit = True
        try:
            channel = self._channels.get(connection) or self._open_channel(connection)
            cursor = channel.cursor(call.query.name)
            if channel.traits.wraps:
                with self._transaction(connection):
                    cursor.execute(call.query.text, call.parameters, prepare=channel.traits.prepare)
            else:
                cursor.execute(call.query.text, call.parameters, prepare=channel.traits.prepare)
            return cursor.fetchall()
        finally:
            if not autocommit and not connection.closed:
                connection.autocommit = False

    def _open_channel(self, connection: psycopg.Connection[Any]) -> Channel[psycopg.RawCursor[Any]]:
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row).execute(TRAITS, prepare=False)
        traits = Traits.read(connection, cursor.fetchall()[0])
        return self._channels.add(
            connection, Channel(traits, lambda: plain(psycopg.RawCursor(connection, row_factory=tuple_row)))
        )

    @contextmanager
    def _transaction(self, connection: psycopg.Connection[Any]) -> Generator[None]:
        try:
            with connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext():
                connection.execute(_BEGIN, prepare=False)
                yield
                connection.execute("COMMIT", prepare=False)
        except psycopg.Error:
            if not connection.closed:
                connection.rollback()
            raise


class AsyncSender:
    """Send calls over async connections, remembering the traits of each."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._channels: Channels[psycopg.AsyncConnection[Any], psycopg.AsyncRawCursor[Any]] = Channels()

    async def fetch(self, connection: psycopg.AsyncConnection[Any], call: Call, limit_s: float) -> Rows:
        """Send a call and give its rows; raises `JobDatabaseError`."""
        with limited_on_loop(socket_of(connection), limit_s) as limit:
            try:
                return await self._execute(connection, call)
            except psycopg.Error as error:
                raise problem(complaint_of(error, connection, limit, limit_s), self._table) from None

    async def _execute(self, connection: psycopg.AsyncConnection[Any], call: Call) -> Rows:
        autocommit = connection.autocommit
        if not autocommit:
            await connection.set_autocommit(True)
        try:
            channel = self._channels.get(connection) or await self._open_channel(connection)
            cursor = channel.cursor(call.query.name)
            if channel.traits.wraps:
                async with self._transaction(connection):
                    await cursor.execute(call.query.text, call.parameters, prepare=channel.traits.prepare)
            else:
                await cursor.execute(call.query.text, call.parameters, prepare=channel.traits.prepare)
            return await cursor.fetchall()
        finally:
            if not autocommit and not connection.closed:
                await connection.set_autocommit(False)

    async def _open_channel(self, connection: psycopg.AsyncConnection[Any]) -> Channel[psycopg.AsyncRawCursor[Any]]:
        cursor = await psycopg.AsyncRawCursor(connection, row_factory=tuple_row).execute(TRAITS, prepare=False)
        traits = Traits.read(connection, (await cursor.fetchall())[0])
        return self._channels.add(
            connection, Channel(traits, lambda: plain(psycopg.AsyncRawCursor(connection, row_factory=tuple_row)))
        )

    @asynccontextmanager
    async def _transaction(self, connection: psycopg.AsyncConnection[Any]) -> AsyncGenerator[None]:
        try:
            async with connection.pipeline() if psycopg.AsyncPipeline.is_supported() else nullcontext():
                await connection.execute(_BEGIN, prepare=False)
                yield
                await connection.execute("COMMIT", prepare=False)
        except psycopg.Error:
            if not connection.closed:
                await connection.rollback()
            raise
