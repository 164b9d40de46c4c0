"""Set the stage: a PostgreSQL of the demo's own, or a schema of its own in the user's database."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import psycopg
from psycopg import sql

from tenure import JobSchedulerService, TenureError
from tenure.demo.tables import Tables
from tenure.embedded import EmbeddedPostgres


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
    schema = f"tenure_demo_{uuid4().hex[:8]}"
    if url is None:
        with EmbeddedPostgres.start() as server:
            yield _furnished(server.url(), schema, "started for this demo")
        return
    try:
        yield _furnished(url, schema, f"yours, in a schema of the demo's own: {schema}")
    finally:
        _drop(url, schema)


def _furnished(url: str, schema: str, where: str) -> Stage:
    with JobSchedulerService(url, schema=schema) as service:
        service.migrate()
    with Tables.open(url, schema) as tables:
        tables.create()
        version = tables.connection.info.parameter_status("server_version") or "of unknown version"
    return Stage(url, schema, f"PostgreSQL {version.split()[0]}, {where}")


def _drop(url: str, schema: str) -> None:
    dropping = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema))
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '5s'")
            connection.execute(dropping)
    except psycopg.Error as error:
        raise DemoError(
            f"The demo's schema could not be dropped ({error}). Please run: {dropping.as_string()}"
        ) from error
