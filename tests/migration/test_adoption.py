"""A table that TypeORM made becomes one of tenure's; its rows keep their instant (C9.3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tenure import (
    DatabaseProblem,
    JobAcquired,
    JobAcquireOptions,
    JobDatabaseError,
    JobNotAcquired,
    JobSchedulerService,
    NotAcquiredReason,
)
from tenure.adoption import Adoption, Step, TimeZoneError, adopt, plan
from tenure.embedded import EmbeddedPostgres
from tenure.schema import migrations
from tenure.statements import Table
from tests.scenarios.test_schema import NAMES, catalog
from tests.support.nestjs import NestNode, lock_key, make_nestjs_table, typeorm_name
from tests.support.rows import TABLE, execute, session_url, set_default
from tests.support.servers import start_test_server
from tests.support.waiting import eventually

HANOI = "Asia/Ho_Chi_Minh"
ZONES = ["UTC", HANOI, "America/New_York", "Australia/Lord_Howe"]
MINE = 'ALTER TABLE public."job-scheduler"'


@pytest.fixture
def nest_url(empty_database_url: str) -> str:
    """A database in which TypeORM made the table, and nobody has written yet."""
    make_nestjs_table(empty_database_url)
    return empty_database_url


def wanted(code: str, lease_ms: int = 60_000) -> JobAcquireOptions:
    return JobAcquireOptions(code=code, run_key="tick", lease_ms=lease_ms)


def write_three_states(url: str, zone: str, table: Table | None = None) -> None:
    """Let a NestJS node whose session is in that zone leave a failed, a done and a running run, in that order."""
    for code, end in (("failed", "fail"), ("done", "complete"), ("running", None)):
        with NestNode(url, table=table, time_zone=zone) as node:
            assert node.acquire(lock_key(code, "tick"), code)
            if end:
                assert getattr(node, end)('{"said": 1}')


def instants(url: str, column: str = "modifiedAt", quoted: str = TABLE) -> dict[str, datetime]:
    rows = execute(url, f'SELECT "code", (EXTRACT(EPOCH FROM "{column}") * 1000000)::bigint FROM {quoted}')
    return {code: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us) for code, us in rows}


def state(url: str, table: Table | None = None) -> tuple[dict[str, list[str]], list[tuple[Any, ...]]]:
    """Give all that the server knows of the table, and its rows."""
    there = (table or Table()).quoted
    return catalog(url, table or Table()), execute(url, f'SELECT t::text FROM {there} AS t ORDER BY "id"')


# What comes out


@pytest.mark.parametrize(("schema", "name"), [*NAMES[:6], NAMES[7]])
def test_an_adopted_table_is_what_the_migrations_make(empty_database_url: str, schema: str, name: str) -> None:
    """C9.2, C9.3: to the last name and column number, but for the default of `id`, and tables are independent."""
    make_nestjs_table(empty_database_url, schema, name)
    table = Table(schema, name)
    write_three_states(empty_database_url, "UTC", table)
    adopt(empty_database_url, schema=schema, table=name, written_in_time_zone="UTC")
    with JobSchedulerService(empty_database_url, schema=schema, table=name) as service:
        assert service.check_schema() == []
        assert service.migrate() == []
    adopted = catalog(empty_database_url, table)
    set_default(empty_database_url, "search_path", "public")
    execute(empty_database_url, f"DROP SCHEMA {_quoted(schema)} CASCADE")
    with JobSchedulerService(empty_database_url, schema=schema, table=name) as service:
        service.migrate()
    made = catalog(empty_database_url, table)
    assert as_adopted(made) == without_uuid_functions(adopted)


def _database(url: str) -> str:
    return url.rsplit("/", 1)[1].partition("?")[0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def as_adopted(made: dict[str, list[str]]) -> dict[str, list[str]]:
    """Give the documented difference: the default of `id` stays TypeORM's."""
    changed = [
        row.replace("gen_random_uuid()", "uuid_generate_v4()").replace("public.uuid", "uuid") for row in made["columns"]
    ]
    return {**without_uuid_functions(made), "columns": changed}


def without_uuid_functions(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Leave out what the extension put into the schema `public`."""
    columns = [row.replace("public.uuid_generate_v4()", "uuid_generate_v4()") for row in found["columns"]]
    functions = [row for row in found["functions"] if "_reclaim" in row]
    return {**found, "columns": columns, "functions": functions}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("adopter", ["UTC", "America/New_York"])
def test_rows_in_all_states_keep_their_instant(nest_url: str, zone: str, adopter: str) -> None:
    """C9.3: in whichever zone they were written, the adopter's session is, and they are read."""
    before = datetime.now(UTC)
    write_three_states(nest_url, zone)
    after = datetime.now(UTC)
    local = execute(nest_url, f'SELECT "modifiedAt", "createdAt" FROM {TABLE} ORDER BY "modifiedAt"')
    adopt(session_url(nest_url, timezone=adopter), written_in_time_zone=zone)
    for reader in ZONES:
        for column in ("modifiedAt", "createdAt"):
            read = instants(session_url(nest_url, timezone=reader), column)
            assert all(before - timedelta(seconds=5) <= instant <= after for instant in read.values())
        exact = [[time.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for time in row] for row in local]
        rows = execute(nest_url, f'SELECT "modifiedAt", "createdAt" FROM {TABLE} ORDER BY "modifiedAt"')
        assert [list(row) for row in rows] == exact


def test_winter_and_summer_are_each_read_by_their_own_offset(nest_url: str) -> None:
    """C9.3: half an hour of summer time on Lord Howe, an hour in New York."""
    insert_at(nest_url, "winter", "2026-01-15 12:00")
    insert_at(nest_url, "summer", "2026-07-15 12:00")
    adopt(nest_url, written_in_time_zone="Australia/Lord_Howe")
    assert instants(nest_url) == {
        "winter": datetime(2026, 1, 15, 1, 0, tzinfo=UTC),
        "summer": datetime(2026, 7, 15, 1, 30, tzinfo=UTC),
    }


def insert_at(url: str, code: str, local: str, status: str = "SUCCESS", token: str = "gen_random_uuid()") -> None:
    execute(
        url,
        f'INSERT INTO {TABLE} ("lockKey", "code", "type", "status", "ownerToken", "createdAt", "modifiedAt") '
        f"VALUES (%s, %s, 'SCHEDULE', '{status}', {token}, %s, %s)",
        lock_key(code, "tick"),
        code,
        local,
        local,
    )


def test_tenure_goes_on_where_the_nestjs_nodes_stood(nest_url: str) -> None:
    """C3.4, C4.1: the done run stays done, the failed one is attempt 2, the live one is not stolen, then expires."""
    write_three_states(nest_url, HANOI)
    adopt(nest_url, written_in_time_zone=HANOI)
    with JobSchedulerService(session_url(nest_url, timezone="America/New_York")) as service:
        done, running, failed = (service.acquire(wanted(code)) for code in ("done", "running", "failed"))
        assert isinstance(done, JobNotAcquired)
        assert isinstance(running, JobNotAcquired)
        assert isinstance(failed, JobAcquired)
        assert (done.reason, done.finished_at) == (NotAcquiredReason.SUCCEEDED, instants(nest_url)["done"])
        assert (running.reason, running.holder) == (NotAcquiredReason.RUNNING, None)
        assert running.expires_at == instants(nest_url)["running"] + timedelta(minutes=1)
        assert (failed.attempt, failed.fencing_token) == (2, 4)
        execute(
            nest_url, f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" - interval \'61 s\' WHERE "code" = \'running\''
        )
        assert isinstance(service.acquire(wanted("running")), JobAcquired)


def test_tokens_follow_age_and_ends_are_noted(nest_url: str) -> None:
    """C4.3: a lease that began after another had ended has the larger number; what nobody saw stays empty."""
    insert_at(nest_url, "young", "2026-03-01 00:00", "FAIL")
    insert_at(nest_url, "old", "2026-01-01 00:00")
    insert_at(nest_url, "middle", "2026-02-01 00:00", "RUNNING")
    adopt(nest_url, written_in_time_zone="UTC")
    rows = execute(
        nest_url,
        'SELECT "code", "attempt", "leaseMs", "owner", "startedAt", "finishedAt" = "modifiedAt" '
        f'FROM {TABLE} ORDER BY "fencingToken"',
    )
    assert rows == [
        ("old", 1, None, None, None, True),
        ("middle", 1, None, None, None, None),
        ("young", 1, None, None, None, True),
    ]


def test_an_application_trigger_does_not_see_the_rows_numbered(nest_url: str) -> None:
    """C9.3: one that stamps each change would make every run look alive."""
    execute(
        nest_url,
        "CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.\"modifiedAt\" := ''2020-01-01''; "
        "RETURN NEW; END'",
    )
    execute(nest_url, f"CREATE TRIGGER stamp BEFORE UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION stamp()")
    insert_at(nest_url, "done", "2026-01-01 00:00")
    adopt(nest_url, written_in_time_zone="UTC")
    assert instants(nest_url) == {"done": datetime(2026, 1, 1, tzinfo=UTC)}
    assert ("stamp", "O") in execute(nest_url, "SELECT tgname::text, tgenabled::text FROM pg_trigger")


def test_renewals_are_heap_only_afterwards(nest_url: str) -> None:
    """C5.4: the index on ("status", "modifiedAt") is gone, and half of each page is free."""
    for code in map(str, range(200)):
        insert_at(nest_url, code, "2026-01-01 00:00", "RUNNING")
    adopt(nest_url, written_in_time_zone="UTC")
    counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'job-scheduler'"
    eventually(lambda: execute(nest_url, counted)[0][0] >= 200)
    [before] = execute(nest_url, counted)
    execute(nest_url, f'UPDATE {TABLE} SET "modifiedAt" = clock_timestamp()')
    eventually(lambda: execute(nest_url, counted)[0][0] == before[0] + 200)
    assert execute(nest_url, counted)[0][1] - before[1] > 150


@pytest.mark.parametrize("zone", ["UTC", HANOI])
def test_a_server_that_lives_in_another_zone(zone: str) -> None:
    """C3.5, C9.3: the nodes wrote in the server's own zone, which they never set."""
    with start_test_server(settings={"timezone": zone}) as server:
        url = server.url()
        make_nestjs_table(url)
        with NestNode(url) as node:
            assert node.acquire(lock_key("running", "tick"), "running")
            adopt(url, written_in_time_zone=zone)
            assert abs(instants(url)["running"] - datetime.now(UTC)) < timedelta(seconds=30)
            assert node.heartbeat()


# Again, and half-way


def test_adopting_again_does_nothing(nest_url: str) -> None:
    """C9.3: no step, no lock, whichever zone is said."""
    write_three_states(nest_url, "UTC")
    assert adopt(nest_url, written_in_time_zone="UTC").steps
    before = state(nest_url)
    with psycopg.connect(nest_url) as reader:
        reader.execute(f"LOCK TABLE {TABLE} IN ROW EXCLUSIVE MODE".encode())
        for zone in (None, HANOI):
            assert plan(nest_url, written_in_time_zone=zone).steps == ()
            assert adopt(nest_url, written_in_time_zone=zone, lock_timeout=timedelta(seconds=1)).steps == ()
    assert state(nest_url) == before


def test_a_table_that_the_migrations_made_needs_nothing(database_url: str) -> None:
    """C9.1, C9.3: what adoption aims at is what the migrations make."""
    assert plan(database_url).steps == ()


SYNCHRONIZED = [
    'DROP COLUMN "fencingToken" CASCADE, DROP COLUMN "attempt", DROP COLUMN "leaseMs", DROP COLUMN "owner", '
    'DROP COLUMN "runKey", DROP COLUMN "startedAt", DROP COLUMN "finishedAt"',
    'DROP CONSTRAINT "job-scheduler_owner_token_key"',
    'ALTER COLUMN "createdAt" SET DEFAULT now(), ALTER COLUMN "modifiedAt" TYPE timestamp, RESET (fillfactor)',
]
HALF = {
    "synchronized": [f"{MINE} {change}" for change in SYNCHRONIZED]
    + [f'CREATE INDEX ON {TABLE} ("status", "modifiedAt")', f'CREATE INDEX ON {TABLE} ("code")'],
    "no record": ['DROP TABLE public."job-scheduler_migrations"'],
    "no trigger": [f'DROP TRIGGER "job-scheduler_reclaim_trigger" ON {TABLE}'],
    "no attempts trigger": [f'DROP TRIGGER "job-scheduler_attempts_trigger" ON {TABLE}'],
    "attempts trigger off": [f'{MINE} DISABLE TRIGGER "job-scheduler_attempts_trigger"'],
    "no function": ['DROP FUNCTION public."job-scheduler_previous"(oid, uuid, uuid)'],
    "no function of the actions": ['DROP FUNCTION public."job-scheduler_released"(uuid, uuid)'],
    "no index of who looks on": ['DROP INDEX public."job-scheduler_exhausted_idx"'],
    "no function of the jobs": ['DROP FUNCTION public."job-scheduler_decided"(varchar, varchar)'],
    "trigger off": [f'{MINE} DISABLE TRIGGER "job-scheduler_reclaim_trigger"'],
    "other function": [
        'CREATE OR REPLACE FUNCTION public."job-scheduler_reclaim"() RETURNS trigger LANGUAGE plpgsql AS '
        "'BEGIN RETURN NEW; END'"
    ],
    "lost defaults": [f'{MINE} ALTER "id" DROP DEFAULT, ALTER "attempt" DROP DEFAULT, ALTER "startedAt" DROP DEFAULT'],
    "lost not null": [f'{MINE} ALTER "ownerToken" DROP NOT NULL, ALTER "attempt" DROP NOT NULL'],
    "no identity": [f'{MINE} ALTER "fencingToken" DROP IDENTITY, ALTER "fencingToken" DROP NOT NULL'],
    "a serial": [
        f'{MINE} ALTER "fencingToken" DROP IDENTITY',
        "CREATE SEQUENCE of_mine",
        f"{MINE} ALTER \"fencingToken\" SET DEFAULT nextval('of_mine')",
    ],
    "wide text": [f'{MINE} ALTER "name" TYPE text, ALTER "lockKey" TYPE varchar(400), ALTER "code" TYPE varchar(32)'],
    "few digits": [f'{MINE} ALTER "modifiedAt" TYPE timestamptz(3), ALTER "createdAt" TYPE timestamptz(0)'],
    "other names": [
        f'{MINE} RENAME CONSTRAINT "job-scheduler_pkey" TO "PK_1"',
        f'{MINE} DROP CONSTRAINT "job-scheduler_lock_key_key"',
        f'CREATE UNIQUE INDEX "IDX_1" ON {TABLE} ("lockKey")',
        'ALTER INDEX public."job-scheduler_code_idx" RENAME TO "IDX_2"',
        'ALTER INDEX public."job-scheduler_unfinished_idx" RENAME TO "IDX_3"',
        'ALTER TYPE public."job-scheduler_status_enum" RENAME TO status',
        "CREATE SCHEMA other",
        'ALTER TYPE public."job-scheduler_type_enum" SET SCHEMA other',
    ],
    "other indexes": [
        'DROP INDEX public."job-scheduler_code_idx"',
        f'CREATE INDEX "job-scheduler_code_idx" ON {TABLE} ("code" DESC)',
        'DROP INDEX public."job-scheduler_unfinished_idx"',
        f'CREATE INDEX "job-scheduler_unfinished_idx" ON {TABLE} ("status", "modifiedAt")',
    ],
}


@pytest.mark.parametrize("changes", HALF.values(), ids=HALF.keys())
def test_a_table_half_like_ours_is_brought_up(database_url: str, changes: list[str]) -> None:
    """C9.3: whatever is there already stays, tokens included, and the rest is made."""
    with JobSchedulerService(database_url) as service:
        won = [service.acquire(wanted(code)) for code in ("a", "b", "c")]
        whole = catalog(database_url, Table())
        for change in changes:
            execute(database_url, change)
        assert service.check_schema() != [] or catalog(database_url, Table()) != whole
        adopt(database_url, written_in_time_zone="UTC")
        assert service.check_schema() == []
        mended = catalog(database_url, Table())
        for part in ("constraints", "indexes", "triggers", "functions", "table"):
            assert mended[part] == whole[part], part
        assert [service.heartbeat(lease) for lease in won if isinstance(lease, JobAcquired)] == [True] * 3
        later = service.acquire(wanted("d"))
        assert isinstance(later, JobAcquired)
        assert later.fencing_token == 4
    assert adopt(database_url).steps == ()


def test_tokens_that_are_there_are_kept(database_url: str) -> None:
    """C4.3: only what has none is numbered, from the largest on."""
    with JobSchedulerService(database_url) as service:
        for code in ("a", "b", "c"):
            service.acquire(wanted(code))
    execute(database_url, f'{MINE} ALTER "fencingToken" DROP IDENTITY, ALTER "fencingToken" DROP NOT NULL')
    execute(database_url, f'UPDATE {TABLE} SET "fencingToken" = NULL WHERE "code" = \'a\'')
    adopt(database_url)
    assert sorted(execute(database_url, f'SELECT "code", "fencingToken" FROM {TABLE}')) == [
        ("a", 4),
        ("b", 2),
        ("c", 3),
    ]


# What is refused


def broken(url: str, *changes: str) -> None:
    for change in changes:
        execute(url, change)


REFUSED: dict[str, tuple[list[str], str]] = {
    "no table of runs": ([f'{MINE} DROP COLUMN "lockKey", DROP COLUMN "data"'], 'has no column "lockKey", "data"'),
    "other type": ([f'{MINE} ALTER "data" TYPE text'], 'The column "data" is text, which is not to be made jsonb'),
    "text status": ([f'{MINE} ALTER "status" TYPE text'], 'The column "status" is text'),
    "more labels": (
        ["ALTER TYPE public.\"job-scheduler_status_enum\" ADD VALUE 'PAUSED'"],
        'The column "status" is public."job-scheduler_status_enum", which',
    ),
    "a column that must be given": (
        [f'{MINE} ADD "tenant" int', f'UPDATE {TABLE} SET "tenant" = 1', f'{MINE} ALTER "tenant" SET NOT NULL'],
        'The column "tenant" is not ours and must be given',
    ),
    "shared tokens": (
        [f'UPDATE {TABLE} SET "ownerToken" = (SELECT "ownerToken" FROM {TABLE} WHERE "code" = \'done\')'],
        '1 value of "ownerToken" stand',
    ),
    "empty tokens": (
        [f'{MINE} ALTER "ownerToken" DROP NOT NULL', f'UPDATE {TABLE} SET "ownerToken" = NULL'],
        'The column "ownerToken" is empty in some rows',
    ),
    "another key": (
        [f'{MINE} DROP CONSTRAINT "{typeorm_name("PK", "job-scheduler", "id")}", ADD PRIMARY KEY ("code")'],
        'primary key "job-scheduler_pkey" is not one on "id" alone',
    ),
    "unique in modifiedAt": ([f'{MINE} ADD UNIQUE ("code", "modifiedAt")'], 'mentions "modifiedAt"'),
    "a view": (
        [f'CREATE VIEW recent AS SELECT "modifiedAt" FROM {TABLE}'],
        "cannot alter type of a column used by a view",
    ),
    "a name that is taken": (
        ['CREATE TABLE public."job-scheduler_owner_token_key" ()'],
        'relation "job-scheduler_owner_token_key" already exists',
    ),
    "a taken type": (
        [
            'ALTER TYPE public."job-scheduler_type_enum" RENAME TO kind',
            "CREATE TYPE public.\"job-scheduler_type_enum\" AS ENUM ('x')",
        ],
        'there is another type "job-scheduler_type_enum"',
    ),
    "too long": (
        [f'{MINE} ALTER "code" TYPE text', f"UPDATE {TABLE} SET \"code\" = repeat('x', 65) WHERE \"code\" = 'done'"],
        "value too long for type character varying(64)",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_adopted_is_refused_and_left_as_it_was(nest_url: str, changes: list[str], reason: str) -> None:
    """C9.3, C11: one clear reason, and nothing changed."""
    write_three_states(nest_url, "UTC")
    broken(nest_url, *changes)
    before = state(nest_url)
    with pytest.raises(JobDatabaseError) as caught:
        adopt(nest_url, written_in_time_zone="UTC")
    assert reason in str(caught.value)
    assert "othing was changed" in str(caught.value)
    assert state(nest_url) == before
    tokens = execute(nest_url, f'SELECT "ownerToken"::text FROM {TABLE} WHERE "ownerToken" IS NOT NULL')
    assert not any(token in str(caught.value) for (token,) in tokens)


def test_an_error_at_any_step_changes_nothing(nest_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C9.3: all or nothing, whether the first step fails, a later one, or the last; then it is adopted."""
    write_three_states(nest_url, "UTC")
    before = state(nest_url)
    made = plan(nest_url, written_in_time_zone="UTC").steps
    assert len(made) > 8
    for failing in (*range(1, len(made) + 1, 2), len(made) + 1):
        broken_off = [*made[: failing - 1], Step("Fail.", "SELECT 1 / 0;")]
        with monkeypatch.context() as patched:
            patched.setattr("tenure.adoption.steps_for", lambda *_, steps=broken_off: iter(steps))
            with pytest.raises(JobDatabaseError, match=f"refused step {failing} .*Nothing was changed"):
                adopt(nest_url, written_in_time_zone="UTC")
        assert state(nest_url) == before
    assert adopt(nest_url, written_in_time_zone="UTC").steps == made


def test_a_result_that_the_check_would_fault_is_undone(nest_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C9.3: what comes out is as it should be, or nothing comes out."""
    before = state(nest_url)
    made = [step for step in plan(nest_url).steps if not step.purpose.startswith("Leave room")]
    monkeypatch.setattr("tenure.adoption.steps_for", lambda *_: iter(made))
    with pytest.raises(JobDatabaseError, match=r"nothing was changed\. Renewals have no room"):
        adopt(nest_url)
    assert state(nest_url) == before


def test_a_missing_table_names_the_command(empty_database_url: str) -> None:
    """C9.4."""
    with pytest.raises(JobDatabaseError, match="tenure schema apply") as caught:
        plan(empty_database_url)
    assert caught.value.problem is DatabaseProblem.SCHEMA_MISSING


def test_something_else_under_that_name_is_left_alone(empty_database_url: str) -> None:
    """C11: a view is no table."""
    execute(empty_database_url, f"CREATE VIEW {TABLE} AS SELECT 1 AS one")
    with pytest.raises(JobDatabaseError, match="is not an ordinary table"):
        adopt(empty_database_url)


# The time zone


def test_times_without_a_zone_need_one(nest_url: str) -> None:
    """C9.3: nobody can know it; an empty table has no times."""
    assert plan(nest_url).steps
    write_three_states(nest_url, "UTC")
    before = state(nest_url)
    for call in (plan, adopt):
        with pytest.raises(TimeZoneError, match="Say which one they were written in"):
            call(nest_url)
    assert state(nest_url) == before


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("Asia/Ho_Chi_Min", "Did you mean Asia/Ho_Chi_Minh"),
        ("+07", "knows no time zone"),
        ("UTC'; DROP TABLE x; --", "knows no time zone"),
        ("", "knows no time zone"),
    ],
)
def test_an_unknown_zone_is_refused(nest_url: str, zone: str, said: str) -> None:
    """C9.3: only the names of pg_timezone_names, whose offsets no sign turns round."""
    write_three_states(nest_url, "UTC")
    with pytest.raises(TimeZoneError, match=said):
        adopt(nest_url, written_in_time_zone=zone)


def test_a_zone_is_known_in_any_case(nest_url: str) -> None:
    """As PostgreSQL has it; the plan spells it rightly."""
    write_three_states(nest_url, HANOI)
    assert "AT TIME ZONE 'Asia/Ho_Chi_Minh'" in plan(nest_url, written_in_time_zone=" asia/ho_chi_minh ").script()


def test_a_zone_that_puts_rows_into_the_future_is_refused(nest_url: str) -> None:
    """C9.3: written at +07 and read as UTC, a dead run would be kept for seven hours."""
    write_three_states(nest_url, HANOI)
    before = state(nest_url)
    with pytest.raises(TimeZoneError, match="were not all written in UTC: so read, 3 of its rows"):
        adopt(nest_url, written_in_time_zone="UTC")
    assert state(nest_url) == before


def test_the_plan_says_what_speaks_against_a_zone(nest_url: str) -> None:
    """C9.3: the newest time beside the server's clock, and the hours of a change of the clocks."""
    insert_at(nest_url, "twice", "2026-11-01 01:30")
    insert_at(nest_url, "never", "2026-03-08 02:30")
    insert_at(nest_url, "once", "2026-03-08 03:30")
    notes = plan(nest_url, written_in_time_zone="America/New_York").notes
    assert notes[0].startswith("Read as America/New_York, the newest time in the table is 2026-11-01 06:30:00Z; ")
    assert notes[1].startswith("1 rows bear a time that no clock in America/New_York has shown")
    assert notes[2].startswith("1 rows bear a time that clocks in America/New_York showed twice")


# Roles, locks and others at work


def test_what_is_made_belongs_to_the_owner_of_the_table(nest_url: str) -> None:
    """C9.3: also when a superuser adopts it, so that the owner can apply later migrations."""
    role = "nest_" + _database(nest_url)
    execute(nest_url, f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    try:
        execute(nest_url, f"{MINE} OWNER TO {role}")
        for name in ("type", "status"):
            execute(nest_url, f'ALTER TYPE public."job-scheduler_{name}_enum" OWNER TO {role}')
        with pytest.raises(JobDatabaseError, match=f"GRANT USAGE, CREATE ON SCHEMA .* TO .{role}.") as caught:
            adopt(nest_url)
        execute(nest_url, str(caught.value).split("run: ")[1])
        adopt(nest_url)
        owners = execute(
            nest_url,
            "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "UNION SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE proname = 'job-scheduler_reclaim'",
        )
        assert owners == [(role,)]
        with JobSchedulerService(make_conninfo(nest_url, user=role, password="secret")) as service:
            assert service.migrate() == []
            assert service.check_schema() == []
    finally:
        execute(nest_url, f"DROP OWNED BY {role}")
        execute(nest_url, f"DROP ROLE {role}")


def test_a_role_that_does_not_own_the_table_is_told_who_does(nest_url: str) -> None:
    """C9.4: rights on rows are not enough to adopt."""
    role = "app_" + _database(nest_url)
    execute(nest_url, f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    try:
        execute(nest_url, f"GRANT ALL ON {TABLE} TO {role}")
        with pytest.raises(JobDatabaseError, match="Connect as its owner") as caught:
            adopt(make_conninfo(nest_url, user=role, password="secret"))
        assert caught.value.problem is DatabaseProblem.GRANT_MISSING
    finally:
        execute(nest_url, f"DROP OWNED BY {role}")
        execute(nest_url, f"DROP ROLE {role}")


def test_rights_that_were_granted_stay(nest_url: str) -> None:
    """C9.3, C9.4: the role of the NestJS nodes goes on, and is fenced."""
    role = "app_" + _database(nest_url)
    execute(nest_url, f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    try:
        execute(nest_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} TO {role}")
        adopt(nest_url)
        with NestNode(make_conninfo(nest_url, user=role, password="secret")) as node:
            key = lock_key("x", "tick")
            assert node.acquire(key, "x")
            assert node.fail()
            assert node.acquire(key, "x")
            assert node.complete()
        assert execute(nest_url, f'SELECT "attempt", "fencingToken" FROM {TABLE}') == [(2, 3)], (
            "the insert that met the row took a number"
        )
    finally:
        execute(nest_url, f"DROP OWNED BY {role}")
        execute(nest_url, f"DROP ROLE {role}")


def test_a_table_in_use_is_waited_for_only_so_long(nest_url: str) -> None:
    """C9.3: one clear error after the lock time-out, nothing changed, and nodes go on."""
    write_three_states(nest_url, "UTC")
    before = state(nest_url)
    with psycopg.connect(nest_url) as other:
        other.execute(f'SELECT "id" FROM {TABLE}'.encode())
        with pytest.raises(JobDatabaseError, match=r"longer than the lock time-out\. Nothing") as caught:
            adopt(nest_url, written_in_time_zone="UTC", lock_timeout=timedelta(milliseconds=200))
    assert caught.value.problem is DatabaseProblem.BUSY
    assert state(nest_url) == before


def test_nodes_at_work_wait_and_go_on(nest_url: str) -> None:
    """C9.3: NestJS nodes keep their leases while the table is adopted under them."""
    with NestNode(nest_url, time_zone=HANOI) as node:
        assert node.acquire(lock_key("busy", "tick"), "busy")
        stop, beats = threading.Event(), []

        def beat() -> None:
            while not stop.is_set():
                beats.append(node.heartbeat())

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            eventually(lambda: len(beats) > 5)
            adopt(nest_url, written_in_time_zone=HANOI)
            since = len(beats)
            eventually(lambda: len(beats) > since + 5)
        finally:
            stop.set()
            thread.join()
        assert all(beats)
        assert abs(instants(nest_url)["busy"] - datetime.now(UTC)) < timedelta(seconds=30)
        assert node.complete()


def test_four_may_adopt_at_once(nest_url: str) -> None:
    """C9.1, C9.3: one does it, the others find nothing to do."""
    write_three_states(nest_url, "UTC")
    ended: list[Adoption | BaseException] = []

    def work() -> None:
        try:
            ended.append(adopt(nest_url, written_in_time_zone="UTC"))
        except BaseException as error:
            ended.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bool(done.steps) for done in ended if isinstance(done, Adoption)) == [False, False, False, True]


def test_only_what_was_agreed_to_is_done(nest_url: str) -> None:
    """C9.3: a table that changed since its plan was shown is left alone."""
    shown = plan(nest_url)
    execute(nest_url, f'CREATE INDEX of_mine ON {TABLE} ("modifiedAt")')
    before = state(nest_url)
    with pytest.raises(JobDatabaseError, match="has changed since the plan was made"):
        adopt(nest_url, agreed=shown)
    assert state(nest_url) == before
    assert adopt(nest_url, agreed=plan(nest_url)).steps


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
def test_the_databases_default_isolation_does_not_matter(nest_url: str, isolation: str) -> None:
    """C4.5: rows that came while it waited for the lock are numbered, too."""
    set_default(nest_url, "default_transaction_isolation", isolation)
    with psycopg.connect(nest_url) as writer:
        writer.execute(f"LOCK TABLE {TABLE} IN ROW EXCLUSIVE MODE".encode())
        ended: list[Callable[[], Any] | Adoption | BaseException] = []

        def work() -> None:
            try:
                ended.append(adopt(nest_url))
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        eventually(
            lambda: execute(nest_url, "SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted")
        )
        writer.execute(
            f'INSERT INTO {TABLE} ("lockKey", "code", "type", "status", "ownerToken") '
            "VALUES ('k', 'late', 'SCHEDULE', 'RUNNING', gen_random_uuid())".encode()
        )
        writer.commit()
        thread.join()
    [error] = ended
    assert isinstance(error, TimeZoneError), "the table is not empty any more, and nobody said its zone"
    assert adopt(nest_url, written_in_time_zone="UTC").steps
    assert execute(nest_url, f'SELECT "fencingToken" FROM {TABLE}') == [(1,)]


def test_a_rival_table_on_the_search_path_is_not_touched(server: EmbeddedPostgres, nest_url: str) -> None:
    """C9.2: `search_path` does not matter, empty or not."""
    make_nestjs_table(nest_url, "shadow")
    shadow = catalog(nest_url, Table("shadow"))
    for path in ("shadow", ""):
        set_default(nest_url, "search_path", path)
        adopt(nest_url)
    set_default(nest_url, "search_path", "public")
    assert catalog(nest_url, Table("shadow")) == shadow
    with JobSchedulerService(nest_url) as service:
        assert service.check_schema() == []
    assert migrations()
