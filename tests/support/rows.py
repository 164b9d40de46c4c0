"""Look at rows, make them older, and say how sessions begin, over connections that belong to nobody under test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ExecStatus

from tests.support.pgbouncer import forget_sessions

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
        # rows may have no columns, and then the cursor has no description
        answered = cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.TUPLES_OK
        return cursor.fetchall() if answered else []


def set_default(url: str, setting: str, value: str) -> None:
    """Have every new session on that database begin with a setting, those of a pooler, too."""
    database = sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_set("DATABASE", database, setting, value))
    forget_sessions(url)


def session_url(url: str, **given: str) -> str:
    """Give a URL whose sessions begin with these settings, which are those of a superuser made for it.

    `options=-c ...` does the same where there is no pooler. The role stays; the server of a test run does not.
    """
    name = f"session_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} SUPERUSER LOGIN PASSWORD 'secret'".encode())
        for setting, value in given.items():
            connection.execute(_set("ROLE", sql.Identifier(name), setting, value))
    return make_conninfo(url, user=name, password="secret")


def _set(kind: LiteralString, name: sql.Identifier, setting: str, value: str) -> sql.Composed:
    return sql.SQL("ALTER " + kind + " {} SET {} = {}").format(name, sql.Identifier(setting), sql.Literal(value))
