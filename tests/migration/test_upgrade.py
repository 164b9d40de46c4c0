"""From the schema of a release to that of the next, with runs under way and nodes of both releases (C9.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tenure import DatabaseProblem, JobAcquired, JobAcquireOptions, JobDatabaseError, JobSchedulerService
from tenure.schema import migrations, migrations_table_script
from tenure.statements import Table, compile_query, migration_script
from tests.support.rows import TABLE, execute

OPTIONS = JobAcquireOptions(code="upgrade", run_key="tick", lease_ms=60_000)
FIRST = "0001_initial.sql"
OLD_STATEMENTS = Path(__file__).parent / "queries_0001.sql"


@pytest.fixture
def first_url(empty_database_url: str) -> str:
    """A database with the first migration only."""
    execute(empty_database_url, migration_script(FIRST, Table()))
    execute(empty_database_url, migrations_table_script(Table()))
    execute(empty_database_url, f"INSERT INTO {Table().migrations_quoted} VALUES ('{FIRST}')")
    return empty_database_url


class OldNode:
    """Send what a node of an earlier release sends, that of the first migration say: its statements, as they were."""

    def __init__(self, connection: psycopg.Connection[Any], statements: Path = OLD_STATEMENTS) -> None:
        self._cursor = psycopg.RawCursor(connection)
        blocks = statements.read_text().split("-- name: ")[1:]
        self._texts = dict(block.split("\n", 1) for block in blocks)
        self.id = self.token = UUID(int=0)

    def send(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        query = compile_query(statement, self._texts[statement], Table().identifiers())
        return self._cursor.execute(query.text, [values[each] for each in query.parameters]).fetchall()

    def acquire(self) -> tuple[Any, ...]:
        token = uuid4()
        row = self.send(
            "acquire",
            lock_key=OPTIONS.lock_key,
            code=OPTIONS.code,
            name=None,
            type="SCHEDULE",
            owner_token=token,
            lease_ms=OPTIONS.lease_ms,
            owner="old",
            run_key=OPTIONS.run_key,
            scheduled_at=None,
        )[0]
        if row[0] == "won":
            self.id, self.token = UUID(row[1]), token
        return row

    def settle(self, status: str) -> str:
        told = {"status": status, "data": '{"error": "old"}', "outcome": None, "retry_ms": None}
        return str(self.send("settle", id=self.id, owner_token=self.token, **told)[0][0])

    def heartbeat(self) -> str:
        return str(self.send("heartbeat", id=self.id, owner_token=self.token)[0][0])

    def renew(self) -> list[tuple[Any, ...]]:
        """Renew as a round does; what was renewed is not mentioned."""
        return self.send("renew", ids=f"{{{self.id}}}", owner_tokens=f"{{{self.token}}}")


@pytest.fixture
def old(first_url: str) -> Iterator[OldNode]:
    with psycopg.connect(first_url, autocommit=True) as connection:
        yield OldNode(connection)


def won(service: JobSchedulerService) -> JobAcquired:
    result = service.acquire(OPTIONS)
    assert isinstance(result, JobAcquired)
    return result


def test_only_what_is_missing_is_applied(first_url: str) -> None:
    """C9.1: and `check` says before what it is."""
    with JobSchedulerService(first_url) as service:
        missing = migrations()[1:]
        faults = service.check_schema()
        assert faults[: len(missing)] == [
            f"Migration {name} is not applied. Run: tenure schema apply" for name in missing
        ]
        assert all(fault.startswith(("The column", "The index")) for fault in faults[len(missing) :])
        with pytest.raises(JobDatabaseError, match="Run: tenure schema apply") as caught:
            service.acquire(OPTIONS)
        assert caught.value.problem in (DatabaseProblem.SCHEMA_OLD, DatabaseProblem.SCHEMA_MISSING)
        assert service.migrate() == missing
        assert service.check_schema() == []
        assert won(service).attempt == 1


def test_a_node_of_the_previous_release_works_on_the_new_schema(first_url: str, old: OldNode) -> None:
    """House, "a column": its lease lives through the upgrade; it wins, renews, settles and loses as before."""
    assert old.acquire()[0] == "won"
    with JobSchedulerService(first_url) as service:
        service.migrate()
        assert old.heartbeat() == "done"
        assert old.renew() == []
        assert not service.acquire(OPTIONS).acquired
        assert old.settle("FAIL") == "done"
        lease = won(service)
        assert lease.attempt == 2
        assert old.acquire()[0] == "lost"
        assert old.settle("SUCCESS") == "taken"
        assert service.fail(lease, {"error": "new"})
        assert old.acquire()[3] == 3
        assert old.settle("SUCCESS") == "done"
        kept = execute(
            first_url,
            'SELECT "attempt", "owner", "data" FROM "job-scheduler_attempts" ORDER BY "attempt"',
        )
        assert [(attempt, data) for attempt, _, data in kept] == [(1, {"error": "old"}), (2, {"error": "new"})]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_applying_does_not_mind_the_default_isolation(empty_database_url: str, level: str) -> None:
    """C4.5, C9.1: two nodes that apply at once see each other's work, whatever the database's default is."""
    execute(
        empty_database_url,
        f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''{level}''', "
        "current_database()); END $$",
    )
    with psycopg.connect(empty_database_url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        holder.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"tenure {TABLE}"])
        applied = in_background(lambda: migrate(empty_database_url))
        waits_for_the_lock(empty_database_url)
        holder.execute(migration_script(FIRST, Table()).encode())
        holder.execute(migrations_table_script(Table()).encode())
        holder.execute(f"INSERT INTO {Table().migrations_quoted} VALUES ('{FIRST}')".encode())
        holder.commit()
        assert applied() == migrations()[1:]


def migrate(url: str) -> list[str]:
    with JobSchedulerService(url) as service:
        return service.migrate()


def in_background(work: Callable[[], list[str]]) -> Callable[[], list[str]]:
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)

    def result() -> list[str]:
        with pool:
            return future.result(20)

    return result


def waits_for_the_lock(url: str) -> None:
    from tests.support.waiting import eventually

    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    eventually(lambda: execute(url, waiting))
