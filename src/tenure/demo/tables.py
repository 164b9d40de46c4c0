"""The demo's own tables: which ticks there are, what happened, and what the job loads.

No unique constraint stands on the orders and the totals. One would hide a double behind an error; here a double shows,
and the verdict counts it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

CODE: Final = "orders-of-the-day"
"""The code of the demo's one job."""

_TABLES: Final = """
CREATE TABLE {schema}.ticks (number integer PRIMARY KEY, run_key text NOT NULL UNIQUE, due_at timestamptz NOT NULL);
CREATE TABLE {schema}.fences (run_key text PRIMARY KEY, fencing_token bigint NOT NULL);
CREATE TABLE {schema}.orders (
  run_key text NOT NULL, attempt integer NOT NULL, fencing_token bigint NOT NULL,
  order_id text NOT NULL, ordered_at timestamptz NOT NULL, customer text NOT NULL, country text NOT NULL,
  sku text NOT NULL, quantity integer NOT NULL, unit_price numeric(10, 2) NOT NULL, currency text NOT NULL,
  discount numeric(4, 2) NOT NULL, amount numeric(12, 2) NOT NULL
);
CREATE TABLE {schema}.totals (
  run_key text NOT NULL, attempt integer NOT NULL, fencing_token bigint NOT NULL, node text NOT NULL,
  orders integer NOT NULL, units integer NOT NULL, amounts jsonb NOT NULL,
  loaded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE {schema}.events (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
  node text NOT NULL, kind text NOT NULL, run_key text, attempt integer, fencing_token bigint, detail text NOT NULL
);
"""

# The run key is what JavaScript's toISOString prints, as for the ticks of a real schedule (C10.1).
_SCHEDULE: Final = """
INSERT INTO {schema}.ticks (number, run_key, due_at)
SELECT n, to_char(due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), due
FROM generate_series(1, %s) AS n,
  LATERAL (SELECT date_trunc('second', clock_timestamp(), 'UTC') + n * interval '1 second') AS d (due)
"""


@dataclass(frozen=True, slots=True)
class Tick:
    """Hold one tick of the schedule."""

    number: int
    run_key: str
    due_at: datetime


class EventKind(StrEnum):
    """Say what happened. The director reports what it did to a node, a node what it did and what it was told."""

    READY = "ready"
    WON = "won"
    BATCH = "batch"
    LOADED = "loaded"
    FOUND_LOADED = "found loaded"
    """An earlier attempt had loaded the tick and died before it could say so: nothing is loaded again."""
    DONE = "done"
    LOST = "lost"
    FAILED = "failed"
    REFUSED = "refused"
    """A write under a lease of the past was refused."""
    ACCEPTED = "accepted"
    """A write under a lease of the past went through, which must not be."""
    PROTESTED = "protested"
    """All writes of a former owner were tried."""
    KILLED = "killed"
    STOPPED = "stopped"
    WOKEN = "woken"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Event:
    """Hold one row of events; `at` is the database's clock."""

    id: int
    at: datetime
    node: str
    kind: EventKind
    run_key: str | None = None
    attempt: int | None = None
    fencing_token: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """Name what one attempt at one run is about to do, and the token it does it under."""

    run_key: str
    attempt: int
    fencing_token: int
    node: str


class Tables:
    """Read and write the demo's tables over one connection in autocommit, at READ COMMITTED."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self._schema = sql.Identifier(schema)

    @classmethod
    @contextmanager
    def open(cls, url: str, schema: str) -> Generator[Tables]:
        """Connect, and close at the end. Keeps no session state, so a pooler may stand between."""
        with psycopg.connect(url, autocommit=True, prepare_threshold=None, client_encoding="utf8") as connection:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            yield cls(connection, schema)

    def composed(self, text: LiteralString) -> sql.Composed:
        """Put the quoted schema into a statement."""
        return sql.SQL(text).format(schema=self._schema)

    def create(self) -> None:
        """Make the tables, in a schema that is there."""
        self.connection.execute(self.composed(_TABLES))

    def rows(self, text: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        """Send a query and give its rows."""
        return self.connection.execute(self.composed(text), values).fetchall()

    def schedule(self, ticks: int) -> list[Tick]:
        """Fix the ticks: one a second from the next full second of the database's clock on."""
        self.connection.execute(self.composed(_SCHEDULE), [ticks])
        return self.ticks()

    def ticks(self) -> list[Tick]:
        """Give the schedule."""
        rows = self.rows(
            "SELECT number, run_key, CAST(EXTRACT(EPOCH FROM due_at) AS float8) FROM {schema}.ticks ORDER BY number"
        )
        return [Tick(number, run_key, _instant(due_s)) for number, run_key, due_s in rows]

    def due_ticks(self) -> list[tuple[Tick, float]]:
        """Give the ticks that are due by the database's clock, and for how many seconds each has been."""
        rows = self.rows(
            "SELECT number, run_key, CAST(EXTRACT(EPOCH FROM due_at) AS float8), "
            "CAST(EXTRACT(EPOCH FROM now.at - due_at) AS float8) "
            "FROM {schema}.ticks, (SELECT clock_timestamp() AS at) AS now WHERE due_at <= now.at ORDER BY number"
        )
        return [(Tick(number, run_key, _instant(due_s)), age_s) for number, run_key, due_s, age_s in rows]

    def report(self, node: str, kind: EventKind, effect: Effect | None = None, detail: str = "") -> None:
        """Write down what happened."""
        about = (effect.run_key, effect.attempt, effect.fencing_token) if effect else (None, None, None)
        self.connection.execute(
            self.composed(
                "INSERT INTO {schema}.events (node, kind, run_key, attempt, fencing_token, detail) "
                "VALUES (%s, %s, %s, %s, %s, %s)"
            ),
            [node, kind.value, *about, detail],
        )

    def events(self, after_id: int = 0) -> list[Event]:
        """Give what happened since that event, in its order."""
        rows: Sequence[tuple[Any, ...]] = self.rows(
            "SELECT id, CAST(EXTRACT(EPOCH FROM at) AS float8), node, kind, run_key, attempt, fencing_token, detail "
            "FROM {schema}.events WHERE id > %s ORDER BY id",
            after_id,
        )
        return [Event(i, _instant(at_s), node, EventKind(kind), *rest) for i, at_s, node, kind, *rest in rows]


def _instant(epoch_s: float) -> datetime:
    # As a number, since a session's DateStyle and TimeZone decide how an instant is written.
    return datetime.fromtimestamp(epoch_s, UTC)
