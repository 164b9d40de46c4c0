"""What operators see at a glance, and page by page: right, and at the cost of what is shown.

`tests.support.many_runs` makes the history.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tenure import (
    AsyncJobSchedulerService,
    InvalidJobOptionsError,
    JobAcquired,
    JobAcquireOptions,
    JobSchedulerService,
    JobSchedulerStatus,
    JobSchedulerType,
)
from tenure.clock import boot_s
from tenure.operating import Health, HistoryFilter, OperatingStatements, Overview, RunState, operations
from tenure.operations import Attempt
from tests.conftest import TEMPLATE
from tests.operating.operator import Operator
from tests.support.many_runs import Trouble, code_of, fill, keep_alive
from tests.support.rows import TABLE, execute, row_of
from tests.support.scheduling import CODE, MINUTE, TickNode, known_for, won
from tests.support.servers import Databases

JOBS, RUNS = 40, 8_000


@pytest.fixture(scope="module")
def history_url(databases: Databases) -> Iterator[str]:
    """A database with a history, which is only looked at."""
    with databases.one(TEMPLATE) as url:
        fill(url, runs=RUNS, jobs=JOBS)
        yield url


@pytest.fixture
def onlooker(history_url: str) -> Iterator[Operator]:
    keep_alive(history_url)
    with JobSchedulerService(history_url) as service:
        yield Operator(service)


# The overview


def test_an_empty_database_is_an_empty_overview(operator: Operator) -> None:
    """Nothing to see is no error."""
    seen = operator.overview()
    assert (seen.jobs, seen.leases, seen.nodes, seen.truncated) == ((), (), (), False)
    assert not seen.needs_attention


def test_each_job_in_trouble_says_so(onlooker: Operator) -> None:
    """Each in its own way, and the others are well."""
    seen = onlooker.overview()
    jobs = {job.code: job for job in seen.jobs}
    expected = {
        Trouble.FAILING: Health.EXHAUSTED,
        Trouble.PAUSED: Health.PAUSED,
        Trouble.ORPHANED: Health.ORPHANED,
        Trouble.OVERDUE: Health.OVERDUE,
        Trouble.DIED: Health.OVERDUE,
        Trouble.RETRYING: Health.FAILING,
    }
    assert {code: job.health for code, job in jobs.items() if job.health is not Health.OK} == {
        code_of(number): health for number, health in expected.items()
    }
    assert seen.needs_attention
    assert not seen.truncated
    assert list(jobs) == [code_of(number) for number in range(1, JOBS + 1)]


def test_what_is_said_of_a_job_is_so(onlooker: Operator, history_url: str) -> None:
    """Ticks, the last success, failures in a row, what is late: by the database's clock."""
    seen = onlooker.overview()
    jobs = {job.code: job for job in seen.jobs}
    well = jobs[code_of(1)]
    assert well.next_tick == seen.clock.replace(second=0, microsecond=0) + MINUTE
    assert len(well.recent) == 30
    assert [run.at for run in well.recent] == sorted((run.at for run in well.recent), reverse=True)
    assert well.last is not None
    assert well.last_success == well.last == well.recent[0]
    assert (well.failures_in_a_row, well.exhausted, well.overdue_since) == (0, 0, None)
    assert well.late_since in (None, seen.clock.replace(second=0, microsecond=0)), "nobody runs the tick of just now"
    assert well.last.lag is not None
    assert timedelta(0) <= well.last.lag < timedelta(seconds=1)
    assert well.last.duration is not None
    assert well.job is not None
    assert well.job.nodes == tuple(f"node-{n}" for n in range(1, 6))
    failing = jobs[code_of(Trouble.FAILING)]
    assert (failing.failures_in_a_row, failing.exhausted) == (30, 40)
    assert failing.last_success is not None
    assert failing.last_success.at == failing.recent[0].at - 40 * MINUTE
    assert failing.recent[0].error == "OSError: no route"
    never = jobs[code_of(Trouble.NEVER_SUCCEEDED)]
    assert (never.last_success, never.last, never.recent[0].state) == (None, None, RunState.PAUSED)
    late = jobs[code_of(Trouble.OVERDUE)]
    assert late.overdue_since is not None
    assert late.late_since is not None
    assert timedelta(minutes=58) < seen.clock - late.late_since <= timedelta(minutes=62)
    died = jobs[code_of(Trouble.DIED)]
    assert [run.state for run in died.unfinished] == [RunState.EXPIRED]
    assert died.running == ()
    assert died.overdue_since is not None
    retrying = jobs[code_of(Trouble.RETRYING)]
    assert (retrying.failures_in_a_row, retrying.overdue_since) == (1, None)
    assert retrying.late_since == retrying.recent[0].scheduled_at
    assert jobs[code_of(Trouble.ORPHANED)].orphaned


def test_live_leases_are_shown_with_what_is_left_of_them(onlooker: Operator) -> None:
    """Newest first, with the holder; that of a node that has died is none."""
    seen = onlooker.overview()
    assert sorted(lease.run.code for lease in seen.leases) == [code_of(n) for n in (10, 20, 30, 40)]
    assert [lease.run.fencing_token for lease in seen.leases] == sorted(
        (lease.run.fencing_token for lease in seen.leases), reverse=True
    )
    for lease in seen.leases:
        assert lease.run.lease_left is not None
        assert timedelta(0) < lease.run.lease_left <= timedelta(minutes=1)
        assert lease.run.holder
        (job,) = (job for job in seen.jobs if job.code == lease.run.code)
        assert job.running == (lease,)
        assert lease.run.scheduled_at is not None
        assert job.late_since is None or job.late_since > lease.run.scheduled_at, "what runs is not late"


def test_nodes_are_shown_with_their_clocks(onlooker: Operator, history_url: str) -> None:
    """Those that are silent are not alive, and run nothing."""
    seen = onlooker.overview()
    assert sorted((node.label, node.clock_offset) for node in seen.nodes) == [
        (f"node-{n}", timedelta(milliseconds=10 * n)) for n in range(1, 6)
    ]
    assert all(seen.is_alive(node) for node in seen.nodes)
    execute(history_url, 'UPDATE "public"."job-scheduler_nodes" SET "seenAt" = "seenAt" - INTERVAL \'61 s\'')
    seen = onlooker.overview()
    assert not any(seen.is_alive(node) for node in seen.nodes)
    assert all(job.orphaned for job in seen.jobs)
    patient = onlooker.overview(alive=timedelta(minutes=5))
    assert all(patient.is_alive(node) for node in patient.nodes)
    assert not any(job.orphaned for job in patient.jobs if job.code != code_of(Trouble.ORPHANED))


def test_a_code_that_no_scheduler_knows_is_shown_too(service: JobSchedulerService, operator: Operator) -> None:
    """C1: who uses leases alone sees them; registered jobs come first, and progress is shown."""
    lease = service.acquire(JobAcquireOptions(code="a plain run", run_key="1", lease_ms=60_000))
    assert isinstance(lease, JobAcquired)
    service.checkpoint(lease, {"done": 3, "of": 10})
    TickNode(service).register("registered")
    seen = operator.overview()
    assert [(job.code, job.registered, job.health) for job in seen.jobs] == [
        ("registered", True, Health.OK),
        ("a plain run", False, Health.OK),
    ]
    (live,) = seen.leases
    assert (live.run.id, live.progress, live.run.holder) == (lease.id, (3, 10), "node-a")
    assert live.renewed_at == live.run.modified_at


def test_a_schedule_that_cannot_be_read_here_is_told(node: TickNode, operator: Operator, database_url: str) -> None:
    """C11: a zone that this machine does not know costs that job its next tick, and nobody else anything."""
    execute(database_url, 'UPDATE "public"."job-scheduler_jobs" SET "timezone" = \'Mars/Olympus\'')
    (job,) = operator.overview().jobs
    assert (job.schedule, job.next_tick) == (None, None)
    assert job.trouble is not None
    assert "Mars/Olympus" in job.trouble


def test_a_long_list_is_cut_and_says_so(
    operator: Operator, service: JobSchedulerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown is bounded, for jobs and for leases."""
    for code in ("a", "b", "c"):
        service.acquire(JobAcquireOptions(code=code, run_key="1"))
    for limit in ("JOBS_LIMIT", "LEASES_LIMIT"):
        monkeypatch.setattr(operations, limit, 2)
        seen = operator.overview()
        assert seen.truncated
        assert 2 in (len(seen.jobs), len(seen.leases))
        monkeypatch.undo()
    assert not operator.overview().truncated


async def test_both_services_give_the_same(history_url: str, onlooker: Operator) -> None:
    """C1.2."""
    async with AsyncJobSchedulerService(history_url) as service:
        statements = OperatingStatements(service.table)
        seen = await service.perform(operations.overview(statements, now_boot_s=boot_s()))
    here = onlooker.overview()
    # what is left of a lease is another matter each time that one looks
    still = [job.code for job in here.jobs if all(run.lease_left is None for run in job.recent)]
    assert len(still) > JOBS // 2
    assert [(job.code, job.health, job.recent) for job in seen.jobs if job.code in still] == [
        (job.code, job.health, job.recent) for job in here.jobs if job.code in still
    ]


# What it costs


def plan_of(url: str, attempt: Attempt[Any]) -> dict[str, Any]:
    """Run a statement, and give its plan with what it read."""
    query, call = attempt.call.query, attempt.call
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        explained = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query.text
        row = connection.execute(explained, call.parameters).fetchone()
    assert row is not None
    found = row[0] if isinstance(row[0], list) else json.loads(row[0])
    plan = found[0]["Plan"]
    assert isinstance(plan, dict)
    return plan


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def rows_read(plan: dict[str, Any]) -> int:
    """Count the rows of the table of runs that were read, those that were thrown away too."""
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes_of(plan)
        if node.get("Relation Name") == "job-scheduler"
    )


def reads_a_whole_history(plan: dict[str, Any]) -> bool:
    """Say whether a table of runs is read from end to end."""
    return any(
        node["Node Type"] == "Seq Scan" and node["Relation Name"] == "job-scheduler" and node["Actual Loops"] > 0
        for node in nodes_of(plan)
    )


def costs(databases: Databases, runs: int, jobs: int = 20) -> dict[str, int]:
    """Give how many rows each question reads, of a history of that length."""
    with databases.one(TEMPLATE) as url:
        fill(url, runs=runs, jobs=jobs)
        statements = OperatingStatements(JobSchedulerService(url).table)
        now = execute(url, "SELECT clock_timestamp()")[0][0]
        hour = {"since": now - timedelta(hours=1), "until": now}
        questions: dict[str, Attempt[Any]] = {
            "overview": operations.overview(statements, now_boot_s=boot_s()),
            "history": operations.history(statements, now_boot_s=boot_s()),
            "history of a job": operations.history(statements, HistoryFilter(code=code_of(1)), now_boot_s=boot_s()),
            "history of failures": operations.history(
                statements, HistoryFilter(state=RunState.EXHAUSTED), now_boot_s=boot_s()
            ),
            "history of an hour": operations.history(statements, HistoryFilter(**hour), now_boot_s=boot_s()),
            "timeline": operations.timeline(statements, **hour, now_boot_s=boot_s()),
            "timeline of a job": operations.timeline(statements, **hour, code=code_of(1), now_boot_s=boot_s()),
            "tick": operations.tick_facts(statements, code_of(1), now, now_boot_s=boot_s()),
        }
        plans = {question: plan_of(url, attempt) for question, attempt in questions.items()}
        whole = [question for question, plan in plans.items() if reads_a_whole_history(plan)]
        assert not whole, f"of {runs:,} runs"
        return {question: rows_read(plan) for question, plan in plans.items()}


def test_it_costs_what_is_shown_not_what_history_costs(databases: Databases) -> None:
    """Ten times the history, as many rows read; but for the halvings that find an instant, which are a few more."""
    short, long = costs(databases, 4_000), costs(databases, 40_000)
    for question, read in long.items():
        assert read <= short[question] + 100, f"{question}: {short[question]} rows, then {read}"
    assert long["overview"] < 20 * (30 + 10)


def test_the_overview_is_one_statement(onlooker: Operator) -> None:
    """C4.1: so it is one snapshot, too. At most five were asked for."""
    attempt = operations.overview(onlooker.statements, now_boot_s=boot_s())
    assert isinstance(onlooker.service.perform(attempt), Overview)
    assert attempt.failures == 0


def test_renewals_stay_heap_only(service: JobSchedulerService, database_url: str) -> None:
    """C5.4: beside the indexes for who looks on."""
    lease = service.acquire(JobAcquireOptions(code="hot", run_key="1", lease_ms=60_000))
    assert isinstance(lease, JobAcquired)
    service.list_runs()
    for _ in range(200):
        assert service.heartbeat(lease)
    with psycopg.connect(database_url, autocommit=True) as connection:
        # what this session has counted is what it sees; that of the others comes when they report
        for _ in range(100):
            row = connection.execute(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'job-scheduler'"
            ).fetchone()
            if row and row[0] >= 200:
                break
            connection.execute("SELECT pg_stat_clear_snapshot(), pg_sleep(0.1)")
            service.heartbeat(lease)
    assert row is not None
    assert row[0] >= 200
    assert row[0] == row[1]


# History, page by page


def test_pages_follow_each_other_without_a_gap(onlooker: Operator) -> None:
    """Newest first; each run once, to the last."""
    seen: list[int] = []
    before: int | None = None
    while True:
        page = onlooker.history(HistoryFilter(code=code_of(2)), before=before, limit=37)
        seen += [run.fencing_token for run in page.runs]
        if page.before is None:
            break
        before = page.before
    assert seen == sorted(set(seen), reverse=True)
    assert len(seen) == RUNS // JOBS


FILTERS: dict[str, tuple[HistoryFilter, str]] = {
    "code": (HistoryFilter(code=code_of(3)), f"\"code\" = '{code_of(3)}'"),
    "status": (HistoryFilter(status=JobSchedulerStatus.FAIL), "\"status\" = 'FAIL'"),
    "exhausted": (HistoryFilter(state=RunState.EXHAUSTED), "\"outcome\" = 'exhausted'"),
    "skipped": (HistoryFilter(state=RunState.SKIPPED), "\"outcome\" = 'skipped'"),
    "succeeded": (
        HistoryFilter(state=RunState.SUCCEEDED, code=code_of(1)),
        f"\"outcome\" = 'succeeded' AND \"code\" = '{code_of(1)}'",
    ),
    "holder": (HistoryFilter(holder="node-4", code=code_of(1)), f"\"owner\" = 'node-4' AND \"code\" = '{code_of(1)}'"),
    "type": (HistoryFilter(type=JobSchedulerType.INITIAL), "\"type\" = 'INITIAL'"),
    "nothing of it": (HistoryFilter(code="no such job", state=RunState.QUEUED), "false"),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_shows_what_it_says(onlooker: Operator, history_url: str, name: str) -> None:
    """All of it and nothing else."""
    wanted, condition = FILTERS[name]
    found, before = [], None
    while True:
        page = onlooker.history(wanted, before=before, limit=500)
        found += [run.id for run in page.runs]
        if (before := page.before) is None:
            break
    rows = execute(history_url, f'SELECT "id" FROM {TABLE} WHERE {condition} ORDER BY "fencingToken" DESC')
    assert found == [row[0] for row in rows]


@pytest.mark.parametrize(("since_minutes", "until_minutes"), [(30, 10), (400, 100), (1, 0), (100_000, 190), (5, -60)])
def test_a_span_of_time_is_cut_out_exactly(
    onlooker: Operator, history_url: str, since_minutes: int, until_minutes: int
) -> None:
    """By when leases began, which the axis of fencing tokens finds without an index on a time."""
    now = execute(history_url, f'SELECT max("startedAt") FROM {TABLE}')[0][0]
    since, until = now - since_minutes * MINUTE, now - until_minutes * MINUTE
    rows = execute(
        history_url,
        f'SELECT "id" FROM {TABLE} WHERE COALESCE("startedAt", "createdAt") BETWEEN %s AND %s '
        'ORDER BY "fencingToken" DESC',
        since,
        until,
    )
    expected = [row[0] for row in rows]
    assert expected
    page = onlooker.history(HistoryFilter(since=since, until=until), limit=1_000)
    assert [run.id for run in page.runs] == expected[:1_000]
    shown = onlooker.timeline(since, until, limit=20_000)
    running = {row[0] for row in execute(history_url, f'SELECT "id" FROM {TABLE} WHERE "status" = \'RUNNING\'')}
    assert {run.id for run in shown.runs} - running == set(expected) - running
    assert not shown.truncated


def test_a_page_stops_looking_for_what_is_rare_and_goes_on_from_there(
    onlooker: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may be short or empty, and yet not the last."""
    monkeypatch.setattr(operations, "_LOOKED", 1_000)
    pages = [onlooker.history(HistoryFilter(holder="no such node"))]
    while pages[-1].before is not None:
        pages.append(onlooker.history(HistoryFilter(holder="no such node"), before=pages[-1].before))
    assert 8 <= len(pages) <= 9
    assert all(page.runs == () for page in pages)


def test_a_timeline_is_bounded_and_ordered(onlooker: Operator) -> None:
    """The newest are shown, oldest first; those under way are there though they began before."""
    seen = onlooker.overview()
    day = (seen.clock - timedelta(days=1), seen.clock)
    shown = onlooker.timeline(*day, limit=100)
    assert (len(shown.runs), shown.truncated) == (100, True)
    began = [run.started_at or run.created_at for run in shown.runs]
    assert began == sorted(began)
    tiny = onlooker.timeline(seen.clock - timedelta(seconds=1), seen.clock + timedelta(hours=1))
    assert {lease.run.id for lease in seen.leases} <= {run.id for run in tiny.runs}
    one = onlooker.timeline(*day, code=code_of(10))
    assert {run.code for run in one.runs} == {code_of(10)}
    assert one.runs[-1].state is RunState.RUNNING


@pytest.mark.parametrize(
    "ask",
    [
        lambda operator: operator.history(limit=0),
        lambda operator: operator.history(limit=True),
        lambda operator: operator.history(HistoryFilter(since=datetime(2026, 1, 1))),
        lambda operator: operator.history(HistoryFilter(state=RunState.RUNNING)),
        lambda operator: operator.history(HistoryFilter(code="a\0b")),
        lambda operator: operator.overview(recent=101),
        lambda operator: operator.timeline(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
        lambda operator: operator.timeline(datetime(2026, 1, 1, tzinfo=UTC), "tomorrow"),
    ],
)
def test_a_question_that_cannot_be_is_refused(operator: Operator, ask: Any) -> None:
    """C11: before any SQL."""
    with pytest.raises(InvalidJobOptionsError):
        ask(operator)


# A run's whole life


def test_a_life_shows_every_attempt(
    service: JobSchedulerService, rival: JobSchedulerService, operator: Operator, database_url: str
) -> None:
    """C7.6: one that failed, one that died, and the one that succeeded, each with holder, times and outcome."""
    node = TickNode(service)
    node.register()
    tick = known_for(database_url, 5 * MINUTE) + MINUTE
    lease = won(node.claim(tick))
    service.fail(lease, {"error": "ValueError: first"})
    options = JobAcquireOptions(code=CODE, run_key=row_of(database_url, lease.id)["runKey"], lease_ms=60_000)
    assert isinstance(rival.acquire(options), JobAcquired)
    execute(database_url, f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" - INTERVAL \'1 day\'')
    assert operator.life(lease.id).attempts[-1].state is RunState.EXPIRED
    last = service.acquire(options)
    assert isinstance(last, JobAcquired)
    running = operator.life(lease.id)
    assert (running.state, running.attempts[-1].ended_at) == (RunState.RUNNING, None)
    service.complete(last, {"rows": 1})
    life = operator.life(options.lock_key)
    assert [(each.attempt, each.state, each.holder, each.error) for each in life.attempts] == [
        (1, RunState.FAILED, "node-a", "ValueError: first"),
        (2, RunState.EXPIRED, "node-b", None),
        (3, RunState.SUCCEEDED, "node-a", None),
    ]
    assert life.attempts[2].data == {"rows": 1}
    assert all(each.started_at is not None and each.ended_at is not None for each in life.attempts)
    assert (life.state, life.run.status, life.actions) == (RunState.SUCCEEDED, JobSchedulerStatus.SUCCESS, ())


def test_a_run_that_is_not_there_has_no_life(operator: Operator) -> None:
    """By id and by key."""
    for run in (uuid4(), "v2:nothing"):
        assert operator.ask(operations.life, run) is None
