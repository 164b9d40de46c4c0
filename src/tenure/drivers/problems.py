"""Turn what a server says into one error that names the mend (C9.4), the same for every driver."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from tenure.errors import DatabaseProblem, JobDatabaseError
from tenure.statements import Table, quote

_SCHEMA_MISSING = {"42P01", "3F000", "42704"}
_SCHEMA_OLD = {"42703", "42804", "428C9", "42883", "23502", "42P10"}
_TRANSIENT_CLASSES = {"40", "53", "55", "57", "58", "08", "XX"}


@dataclass(frozen=True, slots=True)
class Complaint:
    """Hold what a server or a driver said, without details, which may quote a row."""

    sqlstate: str | None
    message: str
    role: str | None = None
    may_have_changed: bool = False
    database: str | None = None
    migrates: bool = False


def problem(complaint: Complaint, table: Table) -> JobDatabaseError:
    """Give the error for a complaint about the table of runs."""
    state = complaint.sqlstate or ""
    if state in _SCHEMA_MISSING:
        return _schema_missing(table)
    if state in _SCHEMA_OLD:
        return JobDatabaseError(
            DatabaseProblem.SCHEMA_OLD,
            f"The table {table.quoted} is not as this version of tenure needs it ({complaint.message}). "
            f"Run: tenure schema apply{_options(table)} (and tenure schema check, to see what it cannot mend)",
        )
    if state == "42501":
        return _grant_missing(complaint, table)
    if state == "25006" or (state == "0A000" and "standby" in complaint.message):
        return JobDatabaseError(
            DatabaseProblem.READ_ONLY,
            "The database is read-only: a standby, or default_transaction_read_only is on. Connect to the primary "
            "(target_session_attrs=read-write picks it from several hosts).",
            transient=True,
        )
    return _other(complaint, state)


def unreachable(message: str, *, may_have_changed: bool = False) -> JobDatabaseError:
    """Give the error for a server that did not answer."""
    return JobDatabaseError(
        DatabaseProblem.UNREACHABLE,
        f"The database cannot be reached: {one_line(message)}. Check that the server runs, and the host, port, "
        "user and password that were given.",
        may_have_changed=may_have_changed,
        transient=True,
    )


def busy(message: str) -> JobDatabaseError:
    """Give the error for a pool that has no connection to spare."""
    return JobDatabaseError(DatabaseProblem.BUSY, message, transient=True)


class Refusals:
    """Let callers who waited while another one was refused share its answer, rather than be refused one by one."""

    def __init__(self) -> None:
        self._last: tuple[float, JobDatabaseError] | None = None

    @contextmanager
    def shared_since(self, came_s: float) -> Generator[None]:
        """Raise what was met since that instant of the monotonic clock; else go on, and note what is met now."""
        if self._last and self._last[0] >= came_s:
            raise copy(self._last[1])
        try:
            yield
        except JobDatabaseError as error:
            self._last = time.monotonic(), copy(error)
            raise


def one_line(message: str) -> str:
    """Fold a driver's message into one line."""
    return "; ".join(part.strip() for part in message.splitlines() if part.strip()).rstrip(".?! ") or "no reason given"


def _schema_missing(table: Table) -> JobDatabaseError:
    return JobDatabaseError(
        DatabaseProblem.SCHEMA_MISSING,
        f"The table {table.quoted} or something that belongs to it does not exist in this database. "
        f"Run: tenure schema apply{_options(table)}",
    )


def _grant_missing(complaint: Complaint, table: Table) -> JobDatabaseError:
    role = quote(complaint.role) if complaint.role else "the role"
    grants = " ".join(f"GRANT {right} TO {role};" for right in _rights(complaint, table))
    return JobDatabaseError(
        DatabaseProblem.GRANT_MISSING,
        f"The role lacks a right ({complaint.message}). As the owner, run: {grants}",
    )


def _rights(complaint: Complaint, table: Table) -> list[str]:
    """Give the right that is missing; all that may be, where the server speaks another language than English."""
    use, create = f"USAGE ON SCHEMA {quote(table.schema)}", f"USAGE, CREATE ON SCHEMA {quote(table.schema)}"
    about = complaint.message.removeprefix("permission denied for ").split(" ", 1)[0]
    tables = {table.name: table.quoted, **table.side_tables()}
    named = [quoted for name, quoted in tables.items() if complaint.message.endswith(f" {name}")] or tables.values()
    rights = f"SELECT, INSERT, UPDATE, DELETE ON {', '.join(named)}"
    found = {
        "schema": [create if complaint.migrates else use],
        "database": [f"CREATE ON DATABASE {quote(complaint.database or '')}"],
        "table": [rights],
        "function": [f"EXECUTE ON FUNCTION {table.beside('previous')}(oid, uuid, uuid)"],
    }
    return found.get(about, [create if complaint.migrates else use, *found["table"]])


def _other(complaint: Complaint, state: str) -> JobDatabaseError:
    if complaint.sqlstate is None or state.startswith("08") or state in {"57P01", "57P02", "57P03"}:
        return unreachable(complaint.message, may_have_changed=complaint.may_have_changed)
    return JobDatabaseError(
        DatabaseProblem.REFUSED,
        f"The database refused the statement ({complaint.message}; SQLSTATE {state}). Nothing was changed by it.",
        transient=state[:2] in _TRANSIENT_CLASSES,
    )


def _options(table: Table) -> str:
    default = Table()
    schema = f" --schema '{table.schema}'" if table.schema != default.schema else ""
    return schema + (f" --table '{table.name}'" if table.name != default.name else "")
