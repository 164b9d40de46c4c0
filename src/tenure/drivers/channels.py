"""What is known about an open psycopg connection: how statements must be sent over it, and with which cursors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

import psycopg
from psycopg.types.array import ListDumper
from psycopg.types.numeric import IntDumper, IntLoader
from psycopg.types.string import StrDumper, TextLoader
from psycopg.types.uuid import UUIDDumper

from tenure.drivers.limits import Limit
from tenure.drivers.problems import Complaint, unreachable

C = TypeVar("C", bound="psycopg.BaseConnection[Any]")
K = TypeVar("K", bound="psycopg.RawCursor[Any] | psycopg.AsyncRawCursor[Any]")

TRAITS = "SELECT pg_backend_pid(), current_setting('default_transaction_isolation')"
_LOADERS = (("text", TextLoader), ("varchar", TextLoader), ("int8", IntLoader), ("int4", IntLoader))
_DUMPERS = ((str, StrDumper), (int, IntDumper), (UUID, UUIDDumper), (list, ListDumper))
_NEVER_SENT = "22000"  # the driver itself refused a value


@dataclass(frozen=True, slots=True)
class Traits:
    """Say how statements must be sent over one connection.

    Behind a pooler (the server's pid is not the one we were told at login) a statement that was prepared may be
    looked for on another server connection, so nothing is prepared. Where the database's default isolation is above
    READ COMMITTED, each statement brings its own transaction, in the same round trip.
    """

    prepare: bool | None
    wraps: bool

    @classmethod
    def read(cls, connection: psycopg.BaseConnection[Any], row: tuple[Any, ...]) -> Traits:
        server_pid, isolation = row
        pooled = server_pid != connection.info.backend_pid
        return cls(prepare=False if pooled else None, wraps=isolation not in ("read committed", "read uncommitted"))


@dataclass(frozen=True, slots=True)
class Channel(Generic[K]):
    """Hold how one connection is sent over, and a cursor for each statement.

    A cursor that meets its own statement again has the converters of parameters and columns ready.
    """

    traits: Traits
    open: Callable[[], K]
    cursors: dict[str, K] = field(default_factory=dict[str, K])

    def cursor(self, statement: str) -> K:
        found = self.cursors.get(statement)
        if found is None:
            found = self.cursors[statement] = self.open()
        return found


class Channels(dict[C, Channel[K]]):
    """Remember the channel of each connection that is open."""

    def add(self, connection: C, channel: Channel[K]) -> Channel[K]:
        for known in [known for known in list(self) if known.closed]:
            self.pop(known, None)
        self[connection] = channel
        return channel


def plain(cursor: K) -> K:
    """Give a cursor that converts our few types as psycopg does, whatever an application registered for its own."""
    for oid, loader in _LOADERS:
        cursor.adapters.register_loader(oid, loader)
    for kind, dumper in _DUMPERS:
        cursor.adapters.register_dumper(kind, dumper)
    return cursor


def socket_of(connection: psycopg.BaseConnection[Any]) -> int:
    try:
        return connection.fileno()
    except psycopg.Error as error:
        raise unreachable(str(error)) from None


def complaint_of(
    error: psycopg.Error, connection: psycopg.BaseConnection[Any], limit: Limit, limit_s: float
) -> Complaint:
    if limit.fired:
        return Complaint(None, f"there was no answer within {limit_s:g} s", may_have_changed=True)
    if connection.closed or (error.sqlstate is None and isinstance(error, psycopg.OperationalError)):
        return Complaint(None, str(error), may_have_changed=True)
    if error.sqlstate is None:
        return Complaint(_NEVER_SENT, str(error))
    return Complaint(error.sqlstate, error.diag.message_primary or "no message", connection.info.user)
