"""Make a table of runs that another tool made into one of tenure's (C9.3).

`plan` shows what is to be done and changes nothing; `adopt` does it in one transaction, all or nothing. Rows keep
their instant, and NestJS nodes may go on using the table.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import psycopg

from tenure.adoption.found import Found, look
from tenure.adoption.step import Step
from tenure.adoption.steps import refuse_what_cannot_be_adopted, steps_for, zoneless_columns
from tenure.drivers import SyncDatabase, resolve
from tenure.errors import DatabaseProblem, InvalidJobOptionsError, JobDatabaseError
from tenure.schema import faults, lock_for_change
from tenure.statements import DEFAULT_SCHEMA, DEFAULT_TABLE, Table, quote

if TYPE_CHECKING:
    Connection = psycopg.Connection[Any]

__all__ = ["Adoption", "Step", "TimeZoneError", "adopt", "plan"]

LOCK_TIMEOUT = timedelta(seconds=15)
_FUTURE_LIMIT = "5 minutes"
_UNNEEDED_ZONE = "UTC"


class TimeZoneError(InvalidJobOptionsError):
    """Say that the table's times have no time zone, and that none was given, or one that cannot be right."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """Show what is to be done, or was. Two are equal when their steps are."""

    table: Table
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = field(compare=False)
    """What to look at before agreeing."""

    def script(self) -> str:
        """Give the steps as one SQL script."""
        written = [f"-- {number}. {_one_line(step.purpose)}\n{step.sql}" for number, step in enumerate(self.steps, 1)]
        limit = f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT.seconds}s';"
        return "\n\n".join([f"BEGIN;\n{limit}", *written, "COMMIT;"])


def plan(
    database: SyncDatabase | None = None,
    *,
    schema: str = DEFAULT_SCHEMA,
    table: str = DEFAULT_TABLE,
    written_in_time_zone: str | None = None,
) -> Adoption:
    """Say what adopting the table would do; changes nothing and locks nothing.

    Raises `TimeZoneError` if the times have no time zone and none was given, or one that the server does not know or
    that cannot be right, and `JobDatabaseError` for a table that cannot be adopted.
    """
    named = Table(schema, table)
    with _transaction(database, named) as connection:
        connection.execute("SET TRANSACTION READ ONLY")
        return _planned(connection, named, written_in_time_zone)


def adopt(
    database: SyncDatabase | None = None,
    *,
    schema: str = DEFAULT_SCHEMA,
    table: str = DEFAULT_TABLE,
    written_in_time_zone: str | None = None,
    lock_timeout: timedelta = LOCK_TIMEOUT,
    agreed: Adoption | None = None,
) -> Adoption:
    """Adopt the table in one transaction, and give what was done; adopting twice is harmless.

    Nodes that use the table wait meanwhile, and go on after. With `agreed`, nothing but that is done: if the table is
    not any more as it was then, `JobDatabaseError` is raised. On any error nothing was changed; errors as for `plan`.
    """
    named = Table(schema, table)
    limit_ms = lock_timeout // timedelta(milliseconds=1)
    if not 1 <= limit_ms <= 2**31 - 1:
        raise InvalidJobOptionsError("The lock time-out must be at least 1 ms and at most 24 days.")
    with _transaction(database, named) as connection:
        try:
            lock_for_change(connection, named, f"{limit_ms}ms")
            done = _adopted(connection, named, written_in_time_zone, agreed)
        except psycopg.errors.LockNotAvailable:
            raise JobDatabaseError(
                DatabaseProblem.BUSY,
                f"The table {named.quoted} was in use by a transaction for longer than the lock time-out. Nothing was "
                "changed. Try again, or give a longer one.",
                transient=True,
            ) from None
    return done


def _adopted(connection: Connection, table: Table, zone: str | None, agreed: Adoption | None) -> Adoption:
    # What is not there, or not ours to alter, is said before a lock is asked for.
    if not _planned(connection, table, zone).steps and not (agreed and agreed.steps):
        return Adoption(table, (), ())
    connection.execute(f"LOCK TABLE {table.quoted} IN ACCESS EXCLUSIVE MODE".encode())
    found = look(connection, table)
    now = _planned(connection, table, zone)
    if agreed is not None and agreed.steps != now.steps:
        raise JobDatabaseError(
            DatabaseProblem.SCHEMA_OLD,
            f"The table {table.quoted} has changed since the plan was made. Nothing was changed now. Look again.",
        )
    # What is made belongs to the owner of the table, whoever adopts it.
    connection.execute(f"SET LOCAL ROLE {quote(found.owner)}".encode())
    for number, step in enumerate(now.steps, 1):
        with _told_by_step(number):
            connection.execute(step.sql.encode())
    if left := faults(connection, table):
        raise JobDatabaseError(
            DatabaseProblem.SCHEMA_OLD,
            f"The table {table.quoted} would not be as it should, so nothing was changed. {' '.join(left)}",
        )
    return now


@contextmanager
def _told_by_step(number: int) -> Generator[None]:
    """Say which step the server refused; what keeps the server from answering is no matter of a step."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.errors.InsufficientPrivilege):
        raise
    except psycopg.Error as error:
        raise JobDatabaseError(
            DatabaseProblem.REFUSED,
            f"The database refused step {number} ({error.diag.message_primary}; SQLSTATE {error.sqlstate}). Nothing "
            "was changed. Remove what is in the way; tenure schema adopt --dry-run shows the steps.",
        ) from None


@contextmanager
def _transaction(database: SyncDatabase | None, table: Table) -> Generator[Connection]:
    """Give a transaction on a connection of its own, which sees what others committed before each statement."""
    driver = resolve(database, table)
    try:
        with driver.administrator()() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            yield connection
    finally:
        driver.close()


def _planned(connection: Connection, table: Table, zone: str | None) -> Adoption:
    found = look(connection, table)
    refuse_what_cannot_be_adopted(found, table)
    used, notes = _zone(connection, table, found, zone)
    return Adoption(table, tuple(steps_for(found, table, used)), tuple(notes))


def _zone(connection: Connection, table: Table, found: Found, zone: str | None) -> tuple[str | None, list[str]]:
    """Give the time zone to read the times in, as the server spells it, and what speaks for and against it."""
    known = None if zone is None else _known_zone(connection, zone)
    columns = zoneless_columns(found)
    if not columns:
        return None, []
    if not found.has_rows:
        return known or _UNNEEDED_ZONE, []
    if known is None:
        raise TimeZoneError(
            f"The times in {table.quoted} have no time zone. Say which one they were written in, such as Asia/Tokyo or "
            "UTC: the TimeZone of the sessions of the nodes that wrote them. "
            f"That of this session is {_session_zone(connection)}."
        )
    if doubtful := _in_the_future(connection, table, columns, known):
        raise TimeZoneError(
            f"The times in {table.quoted} were not all written in {known}: so read, {doubtful} of its rows would be of "
            f"a time that is more than {_FUTURE_LIMIT} ahead. Nothing was changed."
        )
    return known, _evidence(connection, table, columns, known)


def _known_zone(connection: Connection, zone: str) -> str:
    names = [row[0] for row in connection.execute("SELECT name FROM pg_catalog.pg_timezone_names")]
    found = {name.lower(): name for name in names}
    if (known := found.get(zone.strip().lower())) is not None:
        return str(known)
    close = get_close_matches(zone.strip(), names, n=3)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    raise TimeZoneError(
        f"The server knows no time zone {zone[:64]!r}.{meant} Give a name of pg_timezone_names, such as Europe/Paris."
    )


def _session_zone(connection: Connection) -> str:
    row = connection.execute("SELECT current_setting('TimeZone')").fetchone()
    return str(row[0]) if row else "unknown"


def _in_the_future(connection: Connection, table: Table, columns: list[str], zone: str) -> int:
    latest = ", ".join(f"{quote(column)} AT TIME ZONE '{zone}'" for column in columns)
    return _count(connection, table, f"GREATEST({latest}) > clock_timestamp() + interval '{_FUTURE_LIMIT}'")


def _evidence(connection: Connection, table: Table, columns: list[str], zone: str) -> list[str]:
    newest = ", ".join(f"max({quote(column)} AT TIME ZONE '{zone}')" for column in columns)
    row = connection.execute(
        f"SELECT to_char(GREATEST({newest}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS\"Z\"'), "
        f"to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS\"Z\"') FROM {table.quoted}".encode()
    ).fetchone()
    notes = (
        [f"Read as {zone}, the newest time in the table is {row[0]}; the server's clock says {row[1]}."] if row else []
    )
    read = [f"({quote(column)} AT TIME ZONE '{zone}')" for column in columns]
    none = [
        f"{instant} AT TIME ZONE '{zone}' <> {quote(column)}" for instant, column in zip(read, columns, strict=True)
    ]
    if count := _count(connection, table, " OR ".join(none)):
        notes.append(f"{count} rows bear a time that no clock in {zone} has shown, at a change to summer time.")
    twice = [
        f"({instant} {sign} interval '{shift} minutes') AT TIME ZONE '{zone}' = {quote(column)}"
        for instant, column in zip(read, columns, strict=True)
        for sign in "+-"
        for shift in (30, 60)
    ]
    if count := _count(connection, table, " OR ".join(twice)):
        notes.append(f"{count} rows bear a time that clocks in {zone} showed twice; which one was meant is not known.")
    return notes


def _count(connection: Connection, table: Table, condition: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table.quoted} WHERE {condition}".encode()).fetchone()
    return int(row[0]) if row else 0


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
