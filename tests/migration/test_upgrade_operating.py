"""From migration 0004 to 0005, under way: what operators do reaches nodes of the previous release and NestJS nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure import JobSchedulerService
from tenure.operating import RunState
from tenure.schema import migrations, migrations_table_script
from tenure.statements import Table, migration_script
from tests.migration.test_upgrade import OPTIONS, OldNode, won
from tests.operating.operator import Operator
from tests.support.nestjs import NestNode, lock_key, make_uuid_function
from tests.support.rows import execute

PREVIOUS_STATEMENTS = Path(__file__).parent / "queries_0004.sql"
BEFORE = [name for name in migrations() if name < "0005"]
KEY = lock_key(OPTIONS.code, OPTIONS.run_key)
ATTEMPTS = 'SELECT "attempt", "status"::text, "outcome" FROM "job-scheduler_attempts" ORDER BY "attempt"'


@pytest.fixture
def previous_url(empty_database_url: str) -> str:
    """A database with the migrations of the previous release."""
    execute(empty_database_url, migrations_table_script(Table()))
    for name in BEFORE:
        execute(empty_database_url, migration_script(name, Table()))
        execute(empty_database_url, f"INSERT INTO {Table().migrations_quoted} VALUES ('{name}')")
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        make_uuid_function(connection)
    return empty_database_url


@pytest.fixture
def previous(previous_url: str) -> Iterator[OldNode]:
    """A node of the previous release, which holds a lease."""
    with psycopg.connect(previous_url, autocommit=True) as connection:
        node = OldNode(connection, PREVIOUS_STATEMENTS)
        assert node.acquire()[0] == "won"
        yield node


@pytest.fixture
def service(previous_url: str) -> Iterator[JobSchedulerService]:
    """A service of this release, once the migration is applied."""
    with JobSchedulerService(previous_url) as made:
        assert made.migrate() == [name for name in migrations() if name not in BEFORE]
        assert made.check_schema() == []
        yield made


def states(operator: Operator, run: Any) -> list[RunState]:
    return [each.state for each in operator.life(run).attempts]


def test_a_node_of_the_previous_release_goes_on(
    previous: OldNode, service: JobSchedulerService, previous_url: str
) -> None:
    """C9.1: its lease lives through the upgrade; both releases win, renew, settle and lose beside each other."""
    assert (previous.heartbeat(), previous.renew()) == ("done", [])
    assert not service.acquire(OPTIONS).acquired
    assert previous.settle("FAIL") == "done"
    lease = won(service)
    assert (previous.acquire()[0], previous.settle("SUCCESS")) == ("lost", "taken")
    assert service.fail(lease)
    assert previous.acquire()[3] == 3
    assert previous.settle("SUCCESS") == "done"
    assert execute(previous_url, ATTEMPTS) == [(1, "FAIL", None), (2, "FAIL", None)]
    assert states(Operator(service), lease.id) == [RunState.FAILED, RunState.FAILED, RunState.SUCCEEDED]


def test_a_release_fences_a_node_of_the_previous_release(previous: OldNode, service: JobSchedulerService) -> None:
    """C5.5: it hears that somebody else has the run, by renewal, by hand and at its end; it may win the run again."""
    operator = Operator(service)
    assert operator.release(previous.id).done
    assert (previous.heartbeat(), previous.renew(), previous.settle("SUCCESS")) == ("taken", [(1, "taken")], "taken")
    assert states(operator, previous.id) == [RunState.RELEASED]
    assert previous.acquire()[3] == 2
    assert states(operator, previous.id) == [RunState.RELEASED, RunState.RUNNING]
    assert previous.settle("SUCCESS") == "done"
    assert operator.retry(previous.id, force=True).done
    assert previous.acquire()[3] == 3
    assert states(operator, previous.id) == [RunState.RELEASED, RunState.SUCCEEDED, RunState.RUNNING]


def test_a_release_fences_a_nestjs_node(previous: OldNode, service: JobSchedulerService, previous_url: str) -> None:
    """C3.4: it settles nothing any more, and takes over what was released or retried, attempt and token moving."""
    operator = Operator(service)
    assert previous.settle("FAIL") == "done"
    with NestNode(previous_url) as nest:
        assert nest.acquire(KEY, OPTIONS.code)
        before = operator.life(previous.id).run
        assert (before.attempt, before.holder) == (2, None)
        assert operator.release(previous.id).done
        assert (nest.heartbeat(), nest.complete()) == (False, False)
        assert nest.acquire(KEY, OPTIONS.code)
        after = operator.life(previous.id).run
        assert (after.attempt, after.outcome) == (3, None)
        assert after.fencing_token > before.fencing_token
        assert nest.complete()
        assert operator.retry(previous.id).run is not None
        assert operator.retry(previous.id, force=True).done
        assert nest.acquire(KEY, OPTIONS.code)
    assert states(operator, previous.id) == [
        RunState.FAILED,
        RunState.RELEASED,
        RunState.SUCCEEDED,
        RunState.RUNNING,
    ]
