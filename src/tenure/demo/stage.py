"""Set the stage: a PostgreSQL of the demo's own, or a schema of its own in the user's database."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import psycopg
from psycopg import sql

from tenure import DatabaseProblem, JobDatabaseError, JobSchedulerService, TenureError
from tenure.demo.tables import Tables
from tenure.embedded import EmbeddedPostgres

DROP_TRIES: Final = 4
DROP_PAUSE_S: Final = 1.0


class DemoError(TenureError):
    """Say why the demo could not be played to its end."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Hold where the demo is played. The URL bears a password: it is in no `repr`."""

    url: str
    schema: str
    described: str

    def __repr__(self) -> str:
        return f"Stage({self.described!r})"


@contextmanager
def set_stage(url: str | None) -> Generator[Stage]:
    """Give a stage with all tables, and clear it away at the end.

    Without a URL a server is started, and stopped at the end with all that it holds. With one, everything happens in
    a new schema, dropped at the end; the role must be allowed to create one. Raises `TenureError`.
    """
    try:
        with _set(url, f"tenure_demo_{uuid4().hex[:8]}") as stage:
            yield stage
    except psycopg.Error as error:
        raise _ended_by(error, f"The database ended the demo: {_on_one_line(error)}") from error


@contextmanager
def _set(url: str | None, schema: str) -> Generator[Stage]:
    if url is None:
        with EmbeddedPostgres.start() as server:
            _migrate(server.url(), schema)
            yield _furnished(server.url(), schema, "started for this demo")
        return
    _migrate(url, schema)
    try:
        yield _furnished(url, schema, f"yours, in a schema of the demo's own, {schema}")
    finally:
        _drop(url, schema)


def _migrate(url: str, schema: str) -> None:
    with JobSchedulerService(url, schema=schema) as service:
        service.migrate()


def _furnished(url: str, schema: str, where: str) -> Stage:
    with Tables.open(url, schema) as tables:
        tables.create()
        version = tables.connection.info.parameter_status("server_version") or "of unknown version"
    return Stage(url, schema, f"PostgreSQL {version.split()[0]}, {where}")


def _drop(url: str, schema: str) -> None:
    """Drop the schema; a server that is just being restarted is waited for."""
    dropping = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema))
    for left in reversed(range(DROP_TRIES)):
        try:
            with psycopg.connect(url) as connection:
                connection.execute("SET LOCAL lock_timeout = '5s'")
                connection.execute(dropping)
        except psycopg.Error as error:
            if left == 0:
                why = f"The demo's schema could not be dropped ({_on_one_line(error)})."
                raise _ended_by(error, f"{why} Please run: {dropping.as_string()}") from error
            time.sleep(DROP_PAUSE_S)
        else:
            return


def _ended_by(error: psycopg.Error, message: str) -> JobDatabaseError:
    broken = isinstance(error, psycopg.OperationalError)
    return JobDatabaseError(DatabaseProblem.UNREACHABLE if broken else DatabaseProblem.REFUSED, message)


def _on_one_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
