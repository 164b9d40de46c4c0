"""The schema: made once, checked, used by NestJS nodes and by roles that may do little (C4.3, C9.1, C9.2, C9.4)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tenure import (
    AsyncJobSchedulerService,
    DatabaseProblem,
    InvalidJobOptionsError,
    JobAcquired,
    JobAcquireOptions,
    JobDatabaseError,
    JobNotAcquired,
    JobSchedulerService,
    LostReason,
    NotAcquiredReason,
)
from tenure.embedded import EmbeddedPostgres
from tenure.embedded.accounts import server_account
from tenure.embedded.plan import CLUSTER, PASSWORD
from tenure.embedded.programs import find_binaries
from tenure.schema import migrations, script
from tenure.shapes import RUNS, SHAPES, Shape
from tenure.statements import SIDE_TABLES, Table, quote
from tests.support.rows import TABLE, execute, row_of, session_url
from tests.support.servers import SETTINGS, start_test_server
from tests.support.waiting import eventually

OPTIONS = JobAcquireOptions(code="schema", run_key="tick", lease_ms=60_000)
PARENT = 'ALTER TABLE "public"."job-scheduler"'
NAMES = [
    ("public", "job-scheduler"),
    ("Weird-Schema", "job-scheduler"),
    ('a "quoted" schema', 'table:with ::colons and "quotes"'),
    ("select", "user"),
    ("ümläut", "ж" * 20),
    ("s" * 63, "t" * 40),
    ("dollar $1 ${table} $reclaim$", "semi; colon -- comment '; DROP"),
    ("dollar $decided$", "more $decided_$ of it"),
    ("back\\slash", "new\nline\ttab"),
    ("100%", "job-scheduler"),
    ("%s", "%(name)s"),
]


def won(service: JobSchedulerService, options: JobAcquireOptions = OPTIONS) -> JobAcquired:
    result = service.acquire(options)
    assert isinstance(result, JobAcquired)
    return result


def lost(service: JobSchedulerService, options: JobAcquireOptions = OPTIONS) -> JobNotAcquired:
    result = service.acquire(options)
    assert isinstance(result, JobNotAcquired)
    return result


OURS = "(SELECT oid FROM pg_class WHERE relnamespace = {schema} AND relkind = 'r')"
CATALOG = {
    "columns": "SELECT relname, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, "
    "attgenerated, pg_get_expr(adbin, adrelid), attcollation::regcollation::text, attstorage::text FROM pg_attribute "
    "JOIN pg_class ON pg_class.oid = attrelid "
    f"LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid IN {OURS} AND attnum > 0",
    "constraints": "SELECT conname, contype::text, condeferrable, convalidated, pg_get_constraintdef(oid) "
    f"FROM pg_constraint WHERE conrelid IN {OURS}",
    "indexes": f"SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index WHERE indrelid IN {OURS}",
    "triggers": "SELECT pg_get_triggerdef(oid), tgenabled::text FROM pg_trigger "
    f"WHERE tgrelid IN {OURS} AND NOT tgisinternal",
    "table": f"SELECT relname, reloptions, relpersistence::text, relrowsecurity FROM pg_class WHERE oid IN {OURS}",
    "functions": "SELECT pg_get_functiondef(oid), proacl::text FROM pg_proc WHERE pronamespace = {schema}",
    "types": "SELECT typname, enumlabel, enumsortorder FROM pg_type JOIN pg_enum ON enumtypid = pg_type.oid "
    "WHERE typnamespace = {schema}",
    "relations": "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = {schema}",
}


def catalog(url: str, table: Table) -> dict[str, list[str]]:
    """Give all that the server knows of a schema and its tables, without the schema's name."""
    place = f"to_regnamespace({literal(quote(table.schema))})"
    found = {}
    for part, query in CATALOG.items():
        placed = query.replace("{schema}", place)
        found[part] = sorted(str(row).replace(table.schema, "<schema>") for row in execute(url, placed))
    return found


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Applying


def test_applying_twice_is_harmless(empty_database_url: str) -> None:
    """C9.1: the second time there is nothing to apply, and nothing is touched."""
    with JobSchedulerService(empty_database_url) as service:
        assert service.migrate() == migrations()
        before = catalog(empty_database_url, Table())
        lease = won(service)
        assert service.migrate() == []
        assert catalog(empty_database_url, Table()) == before
        assert service.check_schema() == []
        assert service.heartbeat(lease)


async def test_the_async_service_applies_and_checks_the_same(empty_database_url: str) -> None:
    """C1.2, C9.1: as the blocking one."""
    async with AsyncJobSchedulerService(empty_database_url, schema="app") as service:
        assert await service.migrate() == migrations()
        assert await service.migrate() == []
        assert await service.check_schema() == []


@pytest.mark.parametrize("schema", ["public", "app"])
def test_eight_threads_may_apply_at_once(empty_database_url: str, schema: str) -> None:
    """C9.1: one applies, the others find it done, none gets an error; the schema may have to be made, too."""
    barrier = threading.Barrier(8)
    applied: list[list[str]] = []
    refused: list[JobDatabaseError] = []

    def apply() -> None:
        with JobSchedulerService(empty_database_url, schema=schema) as service:
            barrier.wait(10)
            try:
                applied.append(service.migrate())
            except JobDatabaseError as error:
                refused.append(error)

    threads = [threading.Thread(target=apply) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    assert sorted(applied) == [[]] * 7 + [migrations()]
    with JobSchedulerService(empty_database_url, schema=schema) as service:
        assert service.check_schema() == []


APPLY = """
import sys
from tenure import JobSchedulerService
with JobSchedulerService(sys.argv[1]) as service:
    print("ready", flush=True)
    sys.stdin.readline()
    print(len(service.migrate()), flush=True)
"""


def test_four_processes_may_apply_at_once(empty_database_url: str) -> None:
    """C9.1: as threads."""
    nodes = [
        subprocess.Popen(
            [sys.executable, "-c", APPLY, empty_database_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for node in nodes:
        assert node.stdout is not None
        assert node.stdout.readline() == "ready\n"
    for node in nodes:
        assert node.stdin is not None
        node.stdin.write("\n")
        node.stdin.flush()
    answers = [node.communicate(timeout=30)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0] * 4
    assert sorted(answers) == ["0\n", "0\n", "0\n", f"{len(migrations())}\n"]


def test_the_printed_schema_is_what_the_migrations_make(empty_database_url: str) -> None:
    """C9.1: columns, types, defaults, constraints, indexes, trigger, function and storage, one by one."""
    printed, migrated = Table("printed"), Table("migrated")
    with JobSchedulerService(empty_database_url, schema=migrated.schema) as service:
        service.migrate()
    execute(empty_database_url, "CREATE SCHEMA printed")
    execute(empty_database_url, script(printed))
    execute(empty_database_url, f"DROP TABLE {migrated.migrations_quoted}")
    made = catalog(empty_database_url, printed)
    assert all(made.values())
    assert made == catalog(empty_database_url, migrated)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.side or "runs")
def test_what_check_expects_is_what_is_made(database_url: str, shape: Shape) -> None:
    """C9.1, C9.2: `shapes.SHAPES`: columns in the order of the table, keys, indexes and foreign keys, and no more."""
    relation = f"'{shape.quoted(Table())}'::regclass"
    rows = execute(
        database_url,
        "SELECT attname, format_type(atttypid, atttypmod), atthasdef, attidentity <> '' FROM pg_attribute "
        f"WHERE attrelid = {relation} AND attnum > 0 ORDER BY attnum",
    )
    identifiers = {name: quote(f"job-scheduler_{name}") for name in ("type_enum", "status_enum")}
    assert [row[:2] for row in rows] == [(name, kind.format(**identifiers)) for name, kind in shape.columns.items()]
    assert tuple(name for name, _, has_default, _ in rows if has_default) == shape.defaulted
    assert tuple(name for name, *_, has_identity in rows if has_identity) == shape.identity
    made = execute(
        database_url,
        f"SELECT conname, contype::text FROM pg_constraint WHERE conrelid = {relation} AND contype IN ('p', 'u', 'f')",
    )
    assert sum(kind in "pu" for _, kind in made) == len(shape.unique)
    prefix = "job-scheduler_"
    assert {name for name, kind in made if kind == "f"} == {prefix + suffix for suffix in shape.foreign_keys}
    indexes = execute(database_url, f"SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = {relation}")
    constraints = {quote(name) for name, _ in made}
    assert {row[0] for row in indexes} - constraints == {quote(prefix + suffix) for suffix in shape.indexes}


def test_the_triggers_that_check_expects_are_those_that_are_made(database_url: str) -> None:
    """C9.1: all of them stand on the table of runs."""
    made = execute(database_url, "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal")
    assert set(made) == {
        (f"job-scheduler_{suffix}", '"job-scheduler"') for shape in SHAPES for suffix in shape.triggers
    }


def test_every_table_is_known_by_what_checks_and_by_what_hides() -> None:
    """C9.1: `shapes.SHAPES` and `statements.SIDE_TABLES`, in the order of the migrations that make them."""
    assert SHAPES[0].side is None
    assert tuple(shape.side for shape in SHAPES[1:]) == SIDE_TABLES
    assert [shape.migration for shape in SHAPES] == sorted(shape.migration for shape in SHAPES)
    assert {shape.migration for shape in SHAPES} <= set(migrations())


def test_further_columns_are_nullable_or_have_a_default(database_url: str) -> None:
    """C9.2: a node that knows only the reference's columns can insert; timestamps carry their zone."""
    reference = {"id", "lockKey", "code", "name", "type", "status", "ownerToken", "data", "createdAt", "modifiedAt"}
    rows = execute(
        database_url,
        "SELECT attname FROM pg_attribute WHERE attnum > 0 AND attnotnull AND NOT atthasdef AND attidentity = '' "
        f"AND attrelid = '{TABLE}'::regclass",
    )
    assert {row[0] for row in rows} <= reference
    assert not [kind for shape in SHAPES for kind in shape.columns.values() if "timestamp without" in kind]


# Names


@pytest.mark.parametrize(("schema", "table"), NAMES)
def test_every_operation_works_under_any_name(empty_database_url: str, schema: str, table: str) -> None:
    """C9.2: `schema=` and `table=` are quoted everywhere, and no search_path is needed."""
    url = session_url(empty_database_url, search_path="")
    with JobSchedulerService(url, schema=schema, table=table) as service:
        assert service.migrate() == migrations()
        assert service.migrate() == []
        assert service.check_schema() == []
        lease = won(service)
        assert lost(service).reason is NotAcquiredReason.RUNNING
        assert service.heartbeat(lease)
        service.checkpoint(lease, {"done": 1})
        assert service.fail(lease, {"tried": True})
        again = won(service)
        assert again.attempt == 2
        assert again.previous is not None
        assert (again.previous.data, again.previous.checkpoint) == ({"tried": True}, {"done": 1})
        service.checkpoint(again, {"done": 2})
        assert service.complete(again)
        quoted = Table(schema, table).quoted
        execute(url, f'UPDATE {quoted} SET "ownerToken" = gen_random_uuid(), "status" = \'RUNNING\'')
        (run,) = service.list_runs()
        assert (run.attempt, run.holder, run.checkpoint) == (3, None, {"done": 2})
        for name in (run.id, run.idempotency_key):
            assert [each.attempt for each in service.list_attempts(name)] == [1, 2]
        found = [service.find_run(name) for name in (run.id, run.idempotency_key)]
        assert [each and each.id for each in found] == [run.id, run.id]
        initial = JobAcquireOptions(code="schema", type="INITIAL", lease_ms=60_000, heartbeat_ms=10)
        renewed = service.run_exclusive(initial, lambda held: eventually(lambda: modified_since(url, quoted, held.id)))
        assert renewed.acquired


def modified_since(url: str, quoted: str, run_id: UUID) -> bool:
    (row,) = execute(url, f'SELECT "modifiedAt" > "startedAt" FROM {quoted} WHERE "id" = \'{run_id}\'')
    return bool(row[0])


def test_tables_are_independent_of_each_other(empty_database_url: str) -> None:
    """C9.2: the same key may be held in each of two schemas, and in two tables of one schema."""
    for schema, table in (("one", "jobs"), ("two", "jobs"), ("two", "more jobs")):
        with JobSchedulerService(empty_database_url, schema=schema, table=table) as service:
            service.migrate()
            assert won(service).fencing_token == 1
            assert len(service.list_runs()) == 1


def test_another_table_earlier_on_the_search_path_is_not_used(database_url: str) -> None:
    """C9.2: `search_path` does not matter."""
    execute(database_url, "CREATE SCHEMA decoy")
    execute(database_url, 'CREATE TABLE decoy."job-scheduler" (LIKE "public"."job-scheduler" INCLUDING ALL)')
    with JobSchedulerService(session_url(database_url, search_path="decoy")) as service:
        won(service)
    assert execute(database_url, 'SELECT count(*) FROM decoy."job-scheduler"') == [(0,)]
    assert row_of(database_url, OPTIONS.lock_key)["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("schema", "table"), [("", "t"), ("s" * 64, "t"), ("s", ""), ("s", "t" * 41), ("s", "ж" * 21), ("a\0b", "t")]
)
def test_names_that_postgresql_would_cut_or_refuse_are_refused(schema: str, table: str) -> None:
    """C9.2, C11: before any SQL, with the limit."""
    with pytest.raises(InvalidJobOptionsError, match="must be 1 to"):
        JobSchedulerService("postgresql://nowhere", schema=schema, table=table)


# What goes wrong while applying


def test_an_error_in_the_middle_leaves_nothing_behind(empty_database_url: str) -> None:
    """C9.1: all or none; once the obstacle is gone, it applies."""
    execute(empty_database_url, "CREATE SCHEMA app")
    obstacle = 'app."job-scheduler_reclaim"()'
    execute(empty_database_url, f"CREATE FUNCTION {obstacle} RETURNS int LANGUAGE sql AS 'SELECT 1'")
    before = catalog(empty_database_url, Table("app"))
    with JobSchedulerService(empty_database_url, schema="app") as service:
        with pytest.raises(JobDatabaseError, match="job-scheduler_reclaim"):
            service.migrate()
        assert catalog(empty_database_url, Table("app")) == before
        execute(empty_database_url, f"DROP FUNCTION {obstacle}")
        assert service.migrate() == migrations()
        assert service.check_schema() == []


def test_a_table_that_tenure_did_not_make_is_left_alone(empty_database_url: str) -> None:
    """C9.1, C11: one clear error, and nothing changed."""
    execute(empty_database_url, 'CREATE TABLE "job-scheduler" ("id" int PRIMARY KEY, "mine" text)')
    execute(empty_database_url, "INSERT INTO \"job-scheduler\" VALUES (1, 'precious')")
    before = catalog(empty_database_url, Table())
    with JobSchedulerService(empty_database_url) as service:
        with pytest.raises(JobDatabaseError, match="tenure did not make it") as caught:
            service.migrate()
        assert caught.value.problem is DatabaseProblem.SCHEMA_OLD
        with pytest.raises(JobDatabaseError) as caught:
            service.acquire(OPTIONS)
        assert caught.value.problem is DatabaseProblem.SCHEMA_OLD
    assert catalog(empty_database_url, Table()) == before
    assert execute(empty_database_url, 'SELECT * FROM "job-scheduler"') == [(1, "precious")]


# A NestJS node on the table

NEST_INSERT = (
    'INSERT INTO "job-scheduler"("id","lockKey","code","name","type","status","ownerToken","data","createdAt",'
    "\"modifiedAt\") VALUES (DEFAULT,$1,$2,$3,$4,'RUNNING',$5,DEFAULT,DEFAULT,DEFAULT) ON CONFLICT DO NOTHING "
    'RETURNING "id","createdAt","modifiedAt"'
)
NEST_RECLAIM = (
    'UPDATE "job-scheduler" SET "status"=\'RUNNING\',"data"=NULL,"ownerToken"=$1,"modifiedAt"=CURRENT_TIMESTAMP '
    'WHERE "lockKey"=$2 AND ("status"=\'FAIL\' OR ("status"=\'RUNNING\' AND "modifiedAt" < CURRENT_TIMESTAMP - '
    'CAST($3 AS interval))) RETURNING "id"'
)
NEST_HEARTBEAT = (
    'UPDATE "job-scheduler" SET "modifiedAt"=CURRENT_TIMESTAMP '
    'WHERE "id"=$1 AND "ownerToken"=$2 AND "status"=\'RUNNING\''
)
NEST_SETTLE = (
    'UPDATE "job-scheduler" SET "status"=$1,"data"=$2,"modifiedAt"=CURRENT_TIMESTAMP '
    'WHERE "id"=$3 AND "ownerToken"=$4 AND "status"=\'RUNNING\''
)


class NestNode:
    """Send what a NestJS node sends."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._cursor = psycopg.RawCursor(connection)
        self.id = self.token = UUID(int=0)

    def acquire(self, options: JobAcquireOptions = OPTIONS, lease_ms: int = 900_000) -> bool:
        self.token = uuid4()
        inserted = [options.lock_key, options.code, options.name, options.type.value, self.token]
        rows = self._cursor.execute(NEST_INSERT.encode(), inserted).fetchall()
        if not rows:
            reclaimed = [self.token, options.lock_key, f"{lease_ms} milliseconds"]
            rows = self._cursor.execute(NEST_RECLAIM.encode(), reclaimed).fetchall()
        if rows:
            self.id = rows[0][0]
        return bool(rows)

    def heartbeat(self) -> bool:
        return self._cursor.execute(NEST_HEARTBEAT.encode(), [self.id, self.token]).rowcount == 1

    def settle(self, status: str, data: str | None = None) -> bool:
        return self._cursor.execute(NEST_SETTLE.encode(), [status, data, self.id, self.token]).rowcount == 1


OUR_TABLES = ", ".join(shape.quoted(Table()) for shape in SHAPES)
RIGHTS = f"GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {OUR_TABLES} TO {{role}}"


@pytest.fixture
def role(database_url: str) -> Iterator[str]:
    """A role that may log in and nothing else, not even use the schema."""
    name = f"app_{uuid4().hex[:12]}"
    execute(database_url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    execute(database_url, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    yield name
    execute(database_url, f"DROP OWNED BY {name}")
    execute(database_url, f"DROP ROLE {name}")


@pytest.fixture
def role_url(database_url: str, role: str) -> str:
    return make_conninfo(database_url, user=role, password="secret")


@pytest.fixture
def app_url(database_url: str, role: str, role_url: str) -> str:
    """The URL of a role with the rights that C9.4 names, and no more."""
    execute(database_url, f"GRANT USAGE ON SCHEMA public TO {role}")
    execute(database_url, RIGHTS.format(role=role))
    return role_url


@pytest.fixture(params=["owner", "app"])
def nest(request: pytest.FixtureRequest, database_url: str) -> Iterator[NestNode]:
    """A NestJS node, once as the owner of the table and once as a role that may only read and write rows."""
    url = database_url if request.param == "owner" else request.getfixturevalue("app_url")
    with psycopg.connect(url, autocommit=True) as connection:
        yield NestNode(connection)


def test_a_nestjs_node_wins_renews_and_completes(
    database_url: str, service: JobSchedulerService, nest: NestNode
) -> None:
    """C9.2: and a tenure node hears of each step."""
    assert nest.acquire()
    loss = lost(service)
    assert (loss.reason, loss.holder, loss.attempt) == (NotAcquiredReason.RUNNING, None, 1)
    before = row_of(database_url, OPTIONS.lock_key)
    assert nest.heartbeat()
    after = row_of(database_url, OPTIONS.lock_key)
    assert after["modifiedAt"] > before["modifiedAt"]
    assert {**after, "modifiedAt": None} == {**before, "modifiedAt": None}
    assert nest.settle("SUCCESS", '{"rows": 3}')
    assert not nest.settle("FAIL")
    loss = lost(service)
    assert loss.reason is NotAcquiredReason.SUCCEEDED
    assert loss.finished_at == row_of(database_url, OPTIONS.lock_key)["modifiedAt"]
    assert not nest.acquire()


def test_a_tenure_node_takes_over_what_a_nestjs_node_failed(
    database_url: str, service: JobSchedulerService, nest: NestNode
) -> None:
    """C4.3, C9.2: as attempt 2, with its own length in the row."""
    assert nest.acquire()
    token = row_of(database_url, OPTIONS.lock_key)["fencingToken"]
    assert nest.settle("FAIL", '{"error": "no"}')
    lease = won(service)
    assert (lease.id, lease.attempt) == (nest.id, 2)
    assert lease.fencing_token > token
    assert not nest.heartbeat()
    assert not nest.settle("SUCCESS")
    row = row_of(database_url, lease.id)
    assert (row["leaseMs"], row["owner"], row["runKey"]) == (60_000, "node-a", "tick")


@pytest.mark.parametrize("ended", ["expired", "failed"])
def test_a_nestjs_takeover_is_fenced_counted_and_forgets_the_holder(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService, nest: NestNode, ended: str
) -> None:
    """C4.3: by a trigger; and the tenure node that held the run is told."""
    lease = won(service)
    won(rival, JobAcquireOptions(code="schema", run_key="another"))
    if ended == "failed":
        service.fail(lease, {"tried": True})
    else:
        execute(
            database_url,
            f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" - interval \'61 s\', '
            '"startedAt" = "startedAt" - interval \'61 s\' WHERE "id" = %s',
            lease.id,
        )
    before = row_of(database_url, lease.id)
    assert nest.acquire(lease_ms=60_000)
    row = row_of(database_url, lease.id)
    assert (row["id"], row["attempt"], row["status"]) == (lease.id, 2, "RUNNING")
    newest = execute(database_url, f'SELECT max("fencingToken") FROM {TABLE}')
    assert [(row["fencingToken"],)] == newest
    assert row["fencingToken"] > lease.fencing_token + 1
    assert (row["leaseMs"], row["owner"], row["finishedAt"]) == (None, None, None)
    assert row["startedAt"] > before["startedAt"]
    assert row["createdAt"] == before["createdAt"]
    assert not service.heartbeat(lease)
    assert lease.hold is not None
    if ended == "expired":
        assert lease.hold.lost_reason is LostReason.TAKEN_OVER
    assert not service.complete(lease)
    assert lost(rival).attempt == 2


def test_a_nestjs_node_loses_to_a_live_run_and_to_one_that_is_done(
    service: JobSchedulerService, nest: NestNode
) -> None:
    """C9.2: it contends on the same keys."""
    lease = won(service)
    assert not nest.acquire()
    assert service.complete(lease)
    assert not nest.acquire()


# Roles that may do little


def test_rights_on_rows_are_enough_at_run_time(app_url: str) -> None:
    """C9.4: `USAGE` on the schema and `SELECT, INSERT, UPDATE, DELETE` on the table: no sequence, type or function."""
    with JobSchedulerService(app_url) as service, JobSchedulerService(app_url) as rival:
        lease = won(service)
        assert lost(rival).reason is NotAcquiredReason.RUNNING
        assert service.heartbeat(lease)
        assert service.fail(lease)
        assert service.complete(won(rival))
        assert [run.attempt for run in service.list_runs(code="schema")] == [2]
        assert service.find_run(lease.id) == service.find_run(lease.idempotency_key)
        initial = JobAcquireOptions(code="schema", type="INITIAL", lease_ms=60_000, heartbeat_ms=10)
        assert service.run_exclusive(
            initial, lambda held: eventually(lambda: modified_since(app_url, TABLE, held.id))
        ).acquired
        assert service.check_schema() == []


def refusal(operation: Callable[[], object]) -> JobDatabaseError:
    """Give the error that an operation raises."""
    with pytest.raises(JobDatabaseError) as caught:
        operation()
    return caught.value


def named_grants(error: JobDatabaseError) -> list[str]:
    """Give the statements that an error tells the owner to run."""
    return re.findall(r"GRANT [^;]+;", str(error))


@pytest.mark.parametrize("missing", ["USAGE", "SELECT", "INSERT", "UPDATE", "everything"])
def test_a_missing_grant_is_named_and_mends_it(database_url: str, role: str, app_url: str, missing: str) -> None:
    """C9.4: run what the message says, as the owner, and it works."""
    if missing in ("USAGE", "everything"):
        execute(database_url, f"REVOKE USAGE ON SCHEMA public FROM {role}")
    if missing != "USAGE":
        right = "ALL" if missing == "everything" else missing
        execute(database_url, f"REVOKE {right} ON {TABLE} FROM {role}")
    steps = 2 if missing == "everything" else 1
    with JobSchedulerService(app_url) as service:
        for _ in range(steps):
            error = refusal(lambda: service.acquire(OPTIONS))
            assert error.problem is DatabaseProblem.GRANT_MISSING
            assert not error.transient
            for statement in named_grants(error):
                execute(database_url, statement)
        won(service)
        assert service.check_schema() == []


def test_a_table_whose_name_says_schema_gets_the_right_grant(database_url: str, role: str, app_url: str) -> None:
    """C9.4: the mend is named for the table, whatever it is called."""
    with JobSchedulerService(database_url, table="schema-jobs") as owner:
        owner.migrate()
    with JobSchedulerService(app_url, table="schema-jobs") as service:
        with pytest.raises(JobDatabaseError) as caught:
            service.acquire(OPTIONS)
        for statement in named_grants(caught.value):
            execute(database_url, statement)
        won(service)


@pytest.mark.parametrize("schema", ["public", "not there yet"])
def test_a_role_that_may_not_create_is_told_what_it_lacks(database_url: str, app_url: str, schema: str) -> None:
    """C9.1, C9.4: the GRANT that is named lets it apply the schema."""
    with JobSchedulerService(app_url, schema=schema, table="more") as service:
        with pytest.raises(JobDatabaseError) as caught:
            service.migrate()
        assert caught.value.problem is DatabaseProblem.GRANT_MISSING
        for statement in named_grants(caught.value):
            execute(database_url, statement)
        assert service.migrate() == migrations()


def test_a_role_with_rights_on_rows_finds_nothing_to_apply(database_url: str, app_url: str) -> None:
    """C9.1, C9.4: applying an applied schema at start is harmless for the run-time role; an old one is the owner's."""
    with JobSchedulerService(app_url) as service:
        assert service.migrate() == []
        execute(database_url, f'{PARENT} DROP COLUMN "leaseMs"')
        error = refusal(service.migrate)
        assert error.problem is DatabaseProblem.GRANT_MISSING
        assert "as the owner" in str(error)


# A schema that is not as it should be


def test_a_missing_table_names_the_command_that_makes_it(empty_database_url: str) -> None:
    """C9.4: with the options for this table; no operation takes it for a lost race."""
    with JobSchedulerService(empty_database_url, schema="app", table="jobs") as service:
        for schema_made in (False, True):
            if schema_made:
                execute(empty_database_url, "CREATE SCHEMA app")
            for operation in (lambda: service.acquire(OPTIONS), service.list_runs, lambda: service.find_run("x")):
                error = refusal(operation)
                assert error.problem is DatabaseProblem.SCHEMA_MISSING
                assert not error.transient
                assert "Run: tenure schema apply --schema 'app' --table 'jobs'" in str(error)
            assert service.check_schema() == ['The table "app"."jobs" does not exist. Run: tenure schema apply']
        service.migrate()
        won(service)


@pytest.mark.parametrize("column", list(RUNS.columns))
def test_a_missing_column_names_the_command(database_url: str, service: JobSchedulerService, column: str) -> None:
    """C9.4: an old or a damaged table is one clear error, and `check` says what is wrong with it."""
    execute(database_url, f'{PARENT} DROP COLUMN "{column}" CASCADE')
    errors = []
    for operation in (lambda: service.acquire(OPTIONS), service.list_runs):
        try:
            operation()
        except JobDatabaseError as error:
            errors.append(error)
    assert errors
    assert {error.problem for error in errors} == {DatabaseProblem.SCHEMA_OLD}
    assert all(column in str(error) and "Run: tenure schema apply" in str(error) for error in errors)
    assert f'The column "{column}" is missing. Run: tenure schema apply' in service.check_schema()


def test_a_missing_unique_index_names_the_mend(database_url: str, service: JobSchedulerService) -> None:
    """C9.4: without it there is no lock, and the error says what to do."""
    execute(database_url, f'{PARENT} DROP CONSTRAINT "job-scheduler_lock_key_key"')
    with pytest.raises(JobDatabaseError) as caught:
        service.acquire(OPTIONS)
    assert caught.value.problem is DatabaseProblem.SCHEMA_OLD


DRIFT = [
    (f'{PARENT} DROP COLUMN "leaseMs"', 'The column "leaseMs" is missing'),
    (f'{PARENT} ALTER COLUMN "attempt" TYPE bigint', 'The column "attempt" is bigint, and should be integer'),
    (f'{PARENT} ALTER COLUMN "createdAt" TYPE timestamp', 'The column "createdAt" is timestamp without time zone'),
    (f'{PARENT} ALTER COLUMN "lockKey" TYPE varchar(64)', 'The column "lockKey" is character varying(64)'),
    (f'{PARENT} ALTER COLUMN "type" TYPE text', 'The column "type" is text'),
    (f'{PARENT} DROP CONSTRAINT "job-scheduler_lock_key_key"', 'There is no unique index on "lockKey"'),
    (f'{PARENT} DROP CONSTRAINT "job-scheduler_owner_token_key"', 'There is no unique index on "ownerToken"'),
    (f'{PARENT} DROP CONSTRAINT "job-scheduler_fencing_token_key"', 'There is no unique index on "fencingToken"'),
    (f'{PARENT} DROP CONSTRAINT "job-scheduler_pkey" CASCADE', 'There is no unique index on "id"'),
    (
        f'{PARENT} DROP CONSTRAINT "job-scheduler_lock_key_key"; CREATE UNIQUE INDEX ON {TABLE} ("lockKey", "code")',
        'There is no unique index on "lockKey"',
    ),
    (
        f'{PARENT} DROP CONSTRAINT "job-scheduler_lock_key_key"; '
        f'CREATE UNIQUE INDEX ON {TABLE} ("lockKey") WHERE "status" = \'RUNNING\'',
        'There is no unique index on "lockKey"',
    ),
    (f'CREATE INDEX slow ON {TABLE} ("status", "modifiedAt")', 'The index slow mentions "modifiedAt"'),
    (f'CREATE INDEX slow ON {TABLE} ("code") INCLUDE ("modifiedAt")', 'The index slow mentions "modifiedAt"'),
    (f'CREATE INDEX slow ON {TABLE} ("code") WHERE "modifiedAt" > \'epoch\'', 'The index slow mentions "modifiedAt"'),
    (f'CREATE INDEX slow ON {TABLE} (("modifiedAt" - "createdAt"))', 'The index slow mentions "modifiedAt"'),
    (f'{PARENT} DISABLE TRIGGER "job-scheduler_reclaim_trigger"', "The reclaim trigger is missing or disabled"),
    (f'DROP TRIGGER "job-scheduler_reclaim_trigger" ON {TABLE}', "The reclaim trigger is missing or disabled"),
    ('DROP TABLE "public"."job-scheduler_attempts"', 'The table "public"."job-scheduler_attempts" is missing'),
    ('DROP TABLE "public"."job-scheduler_checkpoints"', 'The table "public"."job-scheduler_checkpoints" is missing'),
    (
        'ALTER TABLE "job-scheduler_checkpoints" DROP COLUMN "savedAt"',
        'The column "savedAt" of "public"."job-scheduler_checkpoints" is missing',
    ),
    (
        'ALTER TABLE "job-scheduler_attempts" ALTER COLUMN "leaseMs" TYPE integer',
        'The column "leaseMs" of "public"."job-scheduler_attempts" is integer, and should be bigint',
    ),
    (
        'ALTER TABLE "job-scheduler_attempts" DROP CONSTRAINT "job-scheduler_attempts_pkey"',
        'There is no unique index on "runId", "attempt" of "public"."job-scheduler_attempts"',
    ),
    (
        'ALTER TABLE "job-scheduler_checkpoints" DROP CONSTRAINT "job-scheduler_checkpoints_fkey"',
        'The foreign key "job-scheduler_checkpoints_fkey" is missing',
    ),
    (
        'ALTER TABLE "job-scheduler_checkpoints" RESET (fillfactor)',
        'Updates have no room: ALTER TABLE "public"."job-scheduler_checkpoints" SET (fillfactor = 50);',
    ),
    (
        'DROP FUNCTION "job-scheduler_previous"(oid, uuid, uuid)',
        'The function "public"."job-scheduler_previous"(oid, uuid, uuid) is missing',
    ),
    ('DROP TABLE "public"."job-scheduler_jobs" CASCADE', 'The table "public"."job-scheduler_jobs" is missing'),
    ('DROP TABLE "public"."job-scheduler_nodes"', 'The table "public"."job-scheduler_nodes" is missing'),
    (
        'ALTER TABLE "job-scheduler_jobs" ALTER COLUMN "knownSince" TYPE timestamp',
        'The column "knownSince" of "public"."job-scheduler_jobs" is timestamp without time zone',
    ),
    (
        'DROP FUNCTION "job-scheduler_decided"(varchar, varchar)',
        'The function "public"."job-scheduler_decided"(character varying, character varying) is missing',
    ),
    ('DROP INDEX "job-scheduler_due_idx"', 'The index "job-scheduler_due_idx" is missing'),
    ('DROP TABLE "public"."job-scheduler_actions" CASCADE', 'The table "public"."job-scheduler_actions" is missing'),
    (
        'DROP FUNCTION "job-scheduler_released"(uuid, uuid)',
        'The function "public"."job-scheduler_released"(uuid, uuid) is missing',
    ),
    ('DROP INDEX "job-scheduler_succeeded_idx"', 'The index "job-scheduler_succeeded_idx" is missing'),
    (f'{PARENT} DISABLE TRIGGER "job-scheduler_attempts_trigger"', "The attempts trigger is missing or disabled"),
    ('DROP TABLE "public"."job-scheduler_outbox"', 'The table "public"."job-scheduler_outbox" is missing'),
    (
        'ALTER TABLE "job-scheduler_outbox" DROP CONSTRAINT "job-scheduler_outbox_key_key"',
        'There is no unique index on "idempotencyKey" of "public"."job-scheduler_outbox"',
    ),
    ('DROP INDEX "job-scheduler_outbox_unsent_idx"', 'The index "job-scheduler_outbox_unsent_idx" is missing'),
    ('DROP TABLE "public"."job-scheduler_migrations"', '"public"."job-scheduler_migrations" is missing'),
    *(
        (
            f'DELETE FROM "public"."job-scheduler_migrations" WHERE "name" = \'{name}\'',
            f"Migration {name} is not applied",
        )
        for name in migrations()
    ),
]


@pytest.mark.parametrize(("change", "said"), DRIFT, ids=[said for _, said in DRIFT])
def test_check_finds_each_kind_of_drift(
    database_url: str, service: JobSchedulerService, change: str, said: str
) -> None:
    """C9.1: one sentence for it, with the mend, and it was not there before."""
    assert service.check_schema() == []
    execute(database_url, change)
    faults = service.check_schema()
    assert [fault for fault in faults if fault.startswith(said)], faults
    assert all(fault.endswith((".", ";", "tenure schema apply", "adopt", "print")) for fault in faults)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.side or "runs")
@pytest.mark.parametrize("right", ["INSERT", "UPDATE", "DELETE", "SELECT"])
def test_check_finds_a_missing_grant_and_names_it(
    database_url: str, role: str, app_url: str, right: str, shape: Shape
) -> None:
    """C9.1, C9.4: the statement that is named, run by the owner, mends it."""
    execute(database_url, f"REVOKE {right} ON {shape.quoted(Table())} FROM {role}")
    with JobSchedulerService(app_url) as service:
        (fault,) = service.check_schema()
        assert fault.startswith(f"The role lacks {right}")
        execute(database_url, fault[fault.index("GRANT") :])
        assert service.check_schema() == []


# Servers that are read-only


def refused_as_read_only(operation: Callable[[], object]) -> None:
    with pytest.raises(JobDatabaseError, match=r"read-only: .*target_session_attrs=read-write") as caught:
        operation()
    assert caught.value.problem is DatabaseProblem.READ_ONLY
    assert caught.value.transient
    assert not caught.value.may_have_changed


def test_a_read_only_database_is_named_and_never_taken_for_a_lost_race(
    database_url: str, service: JobSchedulerService
) -> None:
    """C9.4: (pg-boss#209) looking is still possible."""
    lease = won(service, JobAcquireOptions(code="schema", run_key="held", lease_ms=1_000))
    read_only_url = session_url(database_url, default_transaction_read_only="on")
    with JobSchedulerService(read_only_url) as reader:
        refused_as_read_only(lambda: reader.acquire(OPTIONS))
        refused_as_read_only(lambda: reader.run_exclusive(OPTIONS, lambda: pytest.fail("it ran")))
        refused_as_read_only(lambda: reader.complete(lease))
        assert [run.id for run in reader.list_runs()] == [lease.id]
        assert reader.check_schema() == []
    with JobSchedulerService(read_only_url, table="absent") as reader:
        refused_as_read_only(reader.migrate)
    assert service.find_run(OPTIONS.lock_key) is None


@pytest.fixture
def standby() -> Iterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    """A primary with the schema and a run, and a hot standby of it."""
    binaries = find_binaries()
    copy_program = Path(binaries.directory) / "pg_basebackup"
    if not copy_program.exists():
        pytest.skip("these binaries have no pg_basebackup")
    with start_test_server() as primary, tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        with JobSchedulerService(primary.url()) as service:
            service.migrate()
            won(service)
        home = Path(folder)
        home.chmod(0o711)
        shutil.copy(primary.data_directory / PASSWORD, home / PASSWORD)
        subprocess.run(
            [copy_program, "-D", home / CLUSTER, "-d", primary.url(), "-R", "-c", "fast", "--no-sync"], check=True
        )
        account = server_account()
        if account:
            for path in [home / CLUSTER, *(home / CLUSTER).rglob("*")]:
                os.chown(path, account.uid, account.gid)
        with EmbeddedPostgres.start(
            home, durable=False, settings=SETTINGS, binaries_directory=binaries.directory
        ) as running:
            yield primary, running


def test_a_standby_is_named_and_serves_once_it_is_promoted(
    standby: tuple[EmbeddedPostgres, EmbeddedPostgres],
) -> None:
    """C9.4, lessons C (pg-boss#209, keys-api#268): a real one, on the same connections before and after."""
    _, server = standby
    another = JobAcquireOptions(code="schema", run_key="another")
    with JobSchedulerService(server.url()) as service:
        refused_as_read_only(lambda: service.acquire(another))
        refused_as_read_only(lambda: service.acquire(OPTIONS))
        assert [run.attempt for run in service.list_runs()] == [1]
        assert service.check_schema() == []
        execute(server.url(), "SELECT pg_promote()")
        assert won(service, another).attempt == 1
        assert lost(service).reason is NotAcquiredReason.RUNNING


def test_a_standby_whose_default_is_serializable_is_named_too(
    standby: tuple[EmbeddedPostgres, EmbeddedPostgres],
) -> None:
    """C4.5, C9.4: that PostgreSQL refuses every query there is the same trouble."""
    primary, server = standby
    execute(primary.url(), "ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
    eventually(lambda: is_serializable(server.url()))
    with JobSchedulerService(server.url()) as service:
        refused_as_read_only(lambda: service.acquire(OPTIONS))


def is_serializable(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute("SHOW default_transaction_isolation").fetchall() == [("serializable",)]
