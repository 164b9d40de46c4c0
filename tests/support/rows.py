"""Look at rows, and make them older, over a connection that belongs to nobody under test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

TABLE = '"public"."job-scheduler"'


def row_of(url: str, run: UUID | str) -> dict[str, Any]:
    """Give a run's row by id or lock key, as a dict of its columns."""
    column = '"id"' if isinstance(run, UUID) else '"lockKey"'
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(f"SELECT * FROM {TABLE} WHERE {column} = %s", [run])
        names = [column.name for column in cursor.description or ()]
        row = cursor.fetchone()
    assert row is not None, f"no row for {run}"
    return dict(zip(names, row, strict=True))


def age(url: str, run: UUID, by: timedelta) -> None:
    """Make a run's last renewal older, as if that time had passed."""
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" - %s WHERE "id" = %s', [by, run])
        assert done.rowcount == 1


def execute(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Send one statement in autocommit and give its rows, if it has any."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []
