"""A NestJS node: its table as its ORM makes it, and its statements, over a connection of its own."""

from __future__ import annotations

import base64
import hashlib
import json
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

import psycopg

from tenure.statements import DEFAULT_SCHEMA, DEFAULT_TABLE, Table, quote
from tests.support.pgbouncer import psycopg_settings
from tests.support.rows import session_url

INSERT = (
    'INSERT INTO {table}("id","lockKey","code","name","type","status","ownerToken","data","createdAt","modifiedAt") '
    "VALUES (DEFAULT,$1,$2,$3,$4,'RUNNING',$5,DEFAULT,DEFAULT,DEFAULT) ON CONFLICT DO NOTHING "
    'RETURNING "id","createdAt","modifiedAt"'
)
RECLAIM = (
    'UPDATE {table} SET "status"=\'RUNNING\',"data"=NULL,"ownerToken"=$1,"modifiedAt"=CURRENT_TIMESTAMP '
    'WHERE "lockKey"=$2 AND ("status"=\'FAIL\' OR ("status"=\'RUNNING\' AND "modifiedAt" < CURRENT_TIMESTAMP - '
    'CAST($3 AS interval))) RETURNING "id"'
)
HEARTBEAT = (
    'UPDATE {table} SET "modifiedAt"=CURRENT_TIMESTAMP WHERE "id"=$1 AND "ownerToken"=$2 AND "status"=\'RUNNING\''
)
SETTLE = (
    'UPDATE {table} SET "status"=$1,"data"=$2,"modifiedAt"=CURRENT_TIMESTAMP '
    'WHERE "id"=$3 AND "ownerToken"=$4 AND "status"=\'RUNNING\''
)


def lock_key(code: str, run_key: str | None, kind: str = "SCHEDULE") -> str:
    """Compute a run's key as a NestJS node does, for text that JSON escapes alike in both languages."""
    identity = {"version": 2, "type": kind, "code": code, "runKey": run_key}
    text = json.dumps(identity, separators=(",", ":"), ensure_ascii=False)
    return "v2:" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


class NestNode:
    """Send what a NestJS node sends, each statement in autocommit; one node holds one lease at a time."""

    def __init__(self, url: str, *, table: Table | None = None, time_zone: str | None = None) -> None:
        url = url if time_zone is None else session_url(url, timezone=time_zone)
        self._connection = psycopg.connect(
            url, autocommit=True, cursor_factory=psycopg.RawCursor, **psycopg_settings(url)
        )
        self._table = (table or Table()).quoted
        self.id = self.owner_token = UUID(int=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def acquire(self, key: str, code: str, lease_ms: int = 900_000, kind: str = "SCHEDULE") -> bool:
        """Insert the run's row, or else take it over if it failed, or is older than this node's lease."""
        token = uuid4()
        rows = self._send(INSERT, key, code, None, kind, token).fetchall()
        rows = rows or self._send(RECLAIM, token, key, f"{lease_ms} milliseconds").fetchall()
        if rows:
            self.id, self.owner_token = rows[0][0], token
        return bool(rows)

    def heartbeat(self) -> bool:
        """Renew the lease that was won last."""
        return self._send(HEARTBEAT, self.id, self.owner_token).rowcount == 1

    def complete(self, data: str | None = None) -> bool:
        """Record SUCCESS for the lease that was won last."""
        return self._settle("SUCCESS", data)

    def fail(self, data: str | None = None) -> bool:
        """Record FAIL for the lease that was won last."""
        return self._settle("FAIL", data)

    def _settle(self, status: str, data: str | None) -> bool:
        return self._send(SETTLE, status, data, self.id, self.owner_token).rowcount == 1

    def _send(self, statement: str, *values: Any) -> psycopg.Cursor[Any]:
        return self._connection.execute(statement.format(table=self._table).encode(), values)


def make_nestjs_table(url: str, schema: str = DEFAULT_SCHEMA, name: str = DEFAULT_TABLE) -> None:
    """Make the table as TypeORM does, with the names that it gives to constraints and indexes."""
    table = f"{quote(schema)}.{quote(name)}"
    kind, status = (f"{quote(schema)}.{quote(f'{name}_{column}_enum')}" for column in ("type", "status"))
    script = f"""
    CREATE SCHEMA IF NOT EXISTS {quote(schema)};
    CREATE TYPE {kind} AS ENUM ('INITIAL', 'SCHEDULE');
    CREATE TYPE {status} AS ENUM ('RUNNING', 'SUCCESS', 'FAIL');
    CREATE TABLE {table} (
      "id" uuid NOT NULL DEFAULT uuid_generate_v4(),
      "lockKey" varchar(320) NOT NULL, "code" varchar(64) NOT NULL, "name" varchar(256),
      "type" {kind} NOT NULL, "status" {status} NOT NULL,
      "ownerToken" uuid NOT NULL, "data" jsonb,
      "createdAt" timestamp NOT NULL DEFAULT now(), "modifiedAt" timestamp NOT NULL DEFAULT now(),
      CONSTRAINT "{typeorm_name("UQ", name, "lockKey")}" UNIQUE ("lockKey"),
      CONSTRAINT "{typeorm_name("PK", name, "id")}" PRIMARY KEY ("id"));
    CREATE INDEX "{typeorm_name("IDX", name, "status", "modifiedAt")}" ON {table} ("status", "modifiedAt");
    CREATE INDEX "{typeorm_name("IDX", name, "code")}" ON {table} ("code");
    """
    with psycopg.connect(url, autocommit=True) as connection:
        make_uuid_function(connection)
        connection.execute(script.encode())


def typeorm_name(prefix: str, table: str, *columns: str) -> str:
    """Name a constraint or an index as TypeORM's default naming strategy does."""
    key = "_".join([table.replace(".", "_"), *sorted(columns)])
    digest = hashlib.sha1(key.encode()).hexdigest()
    return f"{prefix}_{digest[: 26 if prefix == 'IDX' else 27]}"


def make_uuid_function(connection: psycopg.Connection[Any]) -> None:
    """Make `uuid_generate_v4()`: by its extension, or by a stand-in where the server lacks that."""
    there = connection.execute("SELECT FROM pg_available_extensions WHERE name = 'uuid-ossp'").fetchone()
    connection.execute(
        'CREATE EXTENSION IF NOT EXISTS "uuid-ossp"'
        if there is not None
        else "CREATE OR REPLACE FUNCTION public.uuid_generate_v4() RETURNS uuid "
        "LANGUAGE sql VOLATILE AS 'SELECT gen_random_uuid()'"
    )
