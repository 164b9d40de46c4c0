"""Give the test suite one real server, databases on it, and what it logged as an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import sql

from tenure.embedded import EmbeddedPostgres

SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
    "log_min_error_statement": "error",
    "log_line_prefix": "%m [%p] %d ",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_ERROR_LINE = re.compile(r"\b(?:ERROR|FATAL|PANIC): {2}")


def start_test_server(
    *, settings: dict[str, str] | None = None, binaries_directory: Path | None = None
) -> EmbeddedPostgres:
    """Start a server that forgets on power loss, in memory if there is room, with every ERROR line in its log."""
    return EmbeddedPostgres.start(
        durable=False, settings={**SETTINGS, **(settings or {})}, binaries_directory=binaries_directory
    )


def create_database(server: EmbeddedPostgres, name: str, template: str | None = None) -> str:
    """Create a database, as a copy of `template` if that is given, and return its URL."""
    _execute(server, _creation(name, template))
    return server.url(name)


def drop_database(server: EmbeddedPostgres, name: str) -> None:
    """Drop a database together with the sessions that are open on it."""
    _execute(server, _removal(name))


class Databases:
    """Make and drop databases over one connection: with one of its own, each costs thrice as much."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._connection: psycopg.Connection | None = None

    @contextmanager
    def one(self, template: str | None = None) -> Iterator[str]:
        """Give the URL of a fresh database, which is dropped at the end."""
        name = f"t_{uuid4().hex[:12]}"
        self._execute(_creation(name, template))
        try:
            yield self._server.url(name)
        finally:
            self._execute(_removal(name))

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()

    def _execute(self, statement: sql.Composed) -> None:
        if self._connection is None or self._connection.broken:  # a test may have ended all sessions
            self._connection = psycopg.connect(self._server.url(), autocommit=True)
        try:
            self._connection.execute(statement)
        except psycopg.OperationalError:
            if not self._connection.broken:
                raise
            self._execute(statement)


def log_offset(server: EmbeddedPostgres) -> int:
    """Return where the server's log ends now, in bytes."""
    return server.log_path.stat().st_size


def error_lines(server: EmbeddedPostgres, since_offset: int = 0) -> list[str]:
    """Return the ERROR, FATAL and PANIC lines that were logged since an offset."""
    with server.log_path.open("rb") as log:
        log.seek(since_offset)
        lines = log.read().decode(errors="replace").splitlines()
    return [line for line in lines if _ERROR_LINE.search(line)]


def _creation(name: str, template: str | None) -> sql.Composed:
    copied = sql.SQL(" TEMPLATE {}").format(sql.Identifier(template)) if template else sql.SQL("")
    return sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)) + copied


def _removal(name: str) -> sql.Composed:
    return sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))


def _execute(server: EmbeddedPostgres, statement: sql.Composed) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement)
