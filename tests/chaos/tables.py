"""The tables of a run: what the jobs did, and the whole history of each lease, which a trigger writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.chaos.plan import CODE
from tests.support.rows import TABLE

# `history` is written by the server itself in the transaction of the change: no node can forget it or lie.
_SCRIPT = f"""
CREATE TABLE effects (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_key text NOT NULL, attempt integer NOT NULL,
  fencing_token bigint NOT NULL, node text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE fences (run_key text PRIMARY KEY, fencing_token bigint NOT NULL);
CREATE TABLE refusals (
  run_key text NOT NULL, fencing_token bigint NOT NULL, node text NOT NULL
);
CREATE TABLE history (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_key text NOT NULL, status text NOT NULL,
  attempt integer NOT NULL, fencing_token bigint NOT NULL, owner_token uuid NOT NULL,
  status_before text, age_ms_before float8, lease_ms_before bigint
);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $note$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO history (run_key, status, attempt, fencing_token, owner_token)
    VALUES (NEW."runKey", NEW."status", NEW."attempt", NEW."fencingToken", NEW."ownerToken");
  ELSIF (OLD."status", OLD."ownerToken", OLD."fencingToken", OLD."attempt")
      IS DISTINCT FROM (NEW."status", NEW."ownerToken", NEW."fencingToken", NEW."attempt") THEN
    INSERT INTO history (run_key, status, attempt, fencing_token, owner_token, status_before, age_ms_before,
      lease_ms_before)
    VALUES (NEW."runKey", NEW."status", NEW."attempt", NEW."fencingToken", NEW."ownerToken", OLD."status",
      1000 * EXTRACT(EPOCH FROM clock_timestamp() - OLD."modifiedAt"), OLD."leaseMs");
  END IF;
  RETURN NULL;
END
$note$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION note();
"""

# One statement, so that a node that is frozen or cut off holds no lock on the fence.
_WRITE = b"""
WITH fence AS (
  INSERT INTO fences AS f (run_key, fencing_token) VALUES (%(run_key)s, %(fencing_token)s)
  ON CONFLICT (run_key) DO UPDATE SET fencing_token = excluded.fencing_token
    -- a larger token was here: its former owner is refused
    WHERE f.fencing_token <= excluded.fencing_token
  RETURNING run_key
)
INSERT INTO effects (run_key, attempt, fencing_token, node)
SELECT run_key, %(attempt)s, %(fencing_token)s, %(node)s FROM fence
RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Run:
    """Hold a run's row as it stands at the end."""

    run_key: str
    status: str
    attempt: int
    fencing_token: int


@dataclass(frozen=True, slots=True)
class Change:
    """Hold one change of a run's row that was no renewal; `…_before` is what it found, `None` for an insert."""

    run_key: str
    status: str
    attempt: int
    fencing_token: int
    owner_token: str
    status_before: str | None = None
    age_ms_before: float | None = None
    lease_ms_before: int | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """Hold one write of a job that was accepted."""

    run_key: str
    attempt: int
    fencing_token: int
    node: str


def create(url: str) -> None:
    """Make the tables and the trigger, beside the table of runs."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_SCRIPT.encode())


def write(url: str, effect: Effect) -> bool:
    """Write an effect under its fence; `False` if a larger fencing token was there."""
    values = {
        "run_key": effect.run_key,
        "attempt": effect.attempt,
        "fencing_token": effect.fencing_token,
        "node": effect.node,
    }
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute(_WRITE, values).fetchone():
            return True
        connection.execute("INSERT INTO refusals VALUES (%(run_key)s, %(fencing_token)s, %(node)s)", values)
    return False


def runs(url: str) -> list[Run]:
    """Give the rows of all runs."""
    statement = f'SELECT "runKey", "status", "attempt", "fencingToken" FROM {TABLE} WHERE "code" = %s'
    return [Run(*row) for row in _rows(url, statement, CODE)]


def changes(url: str) -> list[Change]:
    """Give the history, in its order."""
    columns = "run_key, status, attempt, fencing_token, CAST(owner_token AS text)"
    before = "status_before, age_ms_before, lease_ms_before"
    return [Change(*row) for row in _rows(url, f"SELECT {columns}, {before} FROM history ORDER BY id")]


def effects(url: str) -> list[Effect]:
    """Give the accepted writes, in their order: the lock on the fence makes it that of the commits of a run."""
    return [Effect(*row) for row in _rows(url, "SELECT run_key, attempt, fencing_token, node FROM effects ORDER BY id")]


def refusals(url: str) -> int:
    """Count the writes that the fence refused."""
    return int(_rows(url, "SELECT count(*) FROM refusals")[0][0])


def succeeded(url: str) -> int:
    """Count the runs that are done."""
    return int(_rows(url, f'SELECT count(*) FROM {TABLE} WHERE "code" = %s AND "status" = \'SUCCESS\'', CODE)[0][0])


def _rows(url: str, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode(), values or None).fetchall()
