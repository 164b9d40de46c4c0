"""What the bare driver and pgbench do beside tenure: plain statements on a table with the same columns and keys."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import psycopg

from bench.measure import Sample
from bench.scene import BARE, TABLE, Scene
from tenure import JobAcquireOptions
from tenure.embedded import binaries

_COLUMNS: Final = '"lockKey", "code", "type", "status", "ownerToken", "leaseMs", "owner", "runKey"'
_INSERT: Final = (
    f"INSERT INTO {BARE} ({_COLUMNS}) VALUES (%s, %s, %s, 'RUNNING', %s, %s, %s, %s) "
    'ON CONFLICT ("lockKey") DO NOTHING RETURNING "id", "fencingToken", "attempt"'
).encode()
_UPDATE: Final = (
    f'UPDATE {BARE} SET "status" = \'SUCCESS\', "modifiedAt" = clock_timestamp(), "finishedAt" = clock_timestamp() '
    'WHERE "id" = %s RETURNING "id"'
).encode()
_SELECT: Final = f'SELECT "id", "status", "attempt", "owner" FROM {TABLE} WHERE "lockKey" = %s'.encode()
_RENEW: Final = f'UPDATE {TABLE} SET "modifiedAt" = clock_timestamp() WHERE "id" = %s'.encode()

_PGBENCH_PAIR: Final = f"""
\\set key random(1, 9000000000000000000)
INSERT INTO {BARE} ({_COLUMNS}) VALUES ('pgbench-' || :key, 'bench', 'SCHEDULE', 'RUNNING', gen_random_uuid(), 900000,
  'pgbench', 'a run key') ON CONFLICT ("lockKey") DO NOTHING RETURNING "id", "fencingToken", "attempt" \\gset
UPDATE {BARE} SET "status" = 'SUCCESS', "modifiedAt" = clock_timestamp(), "finishedAt" = clock_timestamp()
  WHERE "id" = CAST(:id AS uuid) RETURNING "id";
"""
# pgbench takes what follows a colon for a variable, in a literal too.
_PGBENCH_SELECT: Final = f"""
SELECT "id", "status", "attempt", "owner" FROM {TABLE} WHERE "lockKey" = 'v2' || chr(58) || '{{key}}';
"""
_TPS: Final = re.compile(r"^tps = ([0-9.]+)", re.MULTILINE)


class BareDriver:
    """Use psycopg as its manual does: `connection.execute` in autocommit; it prepares what it sees often."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def insert(self, runs: Sequence[JobAcquireOptions]) -> list[UUID]:
        """Insert a row each, as a first acquire does, and give the ids."""
        return [self._insert(run) for run in runs]

    def update(self, ids: Sequence[UUID]) -> None:
        """Update the rows by key, one by one."""
        for row_id in ids:
            self._connection.execute(_UPDATE, (row_id,)).fetchone()

    def select(self, runs: Sequence[JobAcquireOptions]) -> None:
        """Look the rows up by key, one by one."""
        for run in runs:
            self._connection.execute(_SELECT, (run.lock_key,)).fetchone()

    def renew(self, ids: Sequence[UUID]) -> None:
        """Renew leases, one by one."""
        for row_id in ids:
            self._connection.execute(_RENEW, (row_id,))

    def _insert(self, run: JobAcquireOptions) -> UUID:
        values = (run.lock_key, run.code, run.type.value, uuid4(), run.lease_ms, "bench", run.run_key)
        row = self._connection.execute(_INSERT, values).fetchone()
        assert row is not None, "the key is new"
        found: UUID = row[0]
        return found


class Pgbench:
    """Run pgbench's own prepared statements over the loopback, as the bare driver does."""

    def __init__(self, scene: Scene, program: Path, connections: int = 1) -> None:
        self._scene = scene
        self._program = program
        self._connections = connections

    @classmethod
    def found(cls, scene: Scene, connections: int = 1) -> Pgbench | None:
        """Find pgbench beside the server's programs or on PATH; `None` if there is none."""
        beside = binaries().directory / "pgbench"
        program = str(beside) if beside.exists() else shutil.which("pgbench")
        return cls(scene, Path(program), connections) if program else None

    def pair(self) -> Sample:
        """Insert and update: give the time of both together."""
        return self._run(_PGBENCH_PAIR, self._scene.effort.batch)

    def select(self, run: JobAcquireOptions) -> Sample:
        """Look one row up by key."""
        return self._run(_PGBENCH_SELECT.format(key=run.lock_key.removeprefix("v2:")), 10 * self._scene.effort.batch)

    def _run(self, script: str, transactions: int) -> Sample:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            told = subprocess.run(
                [self._program, *self._arguments(transactions), "-f", file.name, self._scene.url],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "PGOPTIONS": ""},
            ).stdout
        tps = _TPS.search(told)
        assert tps is not None, "pgbench reports its rate"
        return Sample(1e6 / float(tps[1]))

    def _arguments(self, transactions: int) -> list[str]:
        connections = str(self._connections)
        return ["-n", "-M", "prepared", "-c", connections, "-j", "1", "-t", str(transactions)]
