"""The verdict: what stands in the database decides, and a double or a loss is never explained away (C11)."""

from __future__ import annotations

from typing import LiteralString

import pytest

from tenure import JobAcquireOptions, JobExecutionLease, JobSchedulerService
from tenure.demo.effects import claim, load
from tenure.demo.orders import read_orders
from tenure.demo.tables import CODE, Effect, EventKind, Tables, Tick
from tenure.demo.verdict import Outcome, RefusedWrite, Verdict, gather, judge
from tests.demo.conftest import Connect

ORDERS = read_orders()[:30]


def played(tables: Tables, service: JobSchedulerService) -> list[Tick]:
    """Play a demo of four ticks by hand: tick 2 was taken from a killed node, tick 3 from a stopped one."""
    ticks = tables.schedule(4)
    for tick in ticks:
        for cause in {2: [EventKind.KILLED], 3: [EventKind.STOPPED]}.get(tick.number, []):
            lease = service.acquire(options(tick))
            assert lease.acquired
            old = Effect(tick.run_key, lease.attempt, lease.fencing_token, "node-2")
            claim(tables, old)
            tables.report("node-2", EventKind.WON, old)
            tables.report("node-2", cause, old)
            service.release(lease)
            if cause is EventKind.STOPPED:
                tables.report("node-2", EventKind.REFUSED, old, "load: the fence stands at 9")
        service.run_exclusive(options(tick), lambda lease, tick=tick: work(tables, tick, lease))
    return ticks


def options(tick: Tick) -> JobAcquireOptions:
    return JobAcquireOptions(code=CODE, run_key=tick.run_key)


def work(tables: Tables, tick: Tick, lease: JobExecutionLease) -> None:
    effect = Effect(tick.run_key, lease.attempt, lease.fencing_token, "node-1")
    tables.report("node-1", EventKind.WON, effect)
    claim(tables, effect)
    load(tables, effect, [ORDERS], lease.check)


def judged(tables: Tables, service: JobSchedulerService) -> Verdict:
    return judge(gather(tables, service))


def change(tables: Tables, statement: LiteralString) -> None:
    assert tables.connection.execute(tables.composed(statement)).rowcount > 0


def test_a_clean_run_is_ok(tables: Tables, demo_service: JobSchedulerService) -> None:
    """Count ticks, winners, takeovers with their times, and refused writes."""
    ticks = played(tables, demo_service)
    verdict = judged(tables, demo_service)
    assert verdict.problems == []
    assert verdict.ok
    assert (verdict.doubles, verdict.lost, verdict.double_orders, verdict.accepted_writes) == (0, 0, 0, 0)
    assert [run.outcome for run in verdict.runs] == [Outcome.ONCE] * 4
    assert [run.attempt for run in verdict.runs] == [1, 2, 2, 1]
    assert verdict.winners == {"node-1": 4}
    told = [(t.tick, t.cause, t.from_node, t.to_node, t.run_key) for t in verdict.takeovers]
    assert told == [
        (2, "killed", "node-2", "node-1", ticks[1].run_key),
        (3, "stopped", "node-2", "node-1", ticks[2].run_key),
    ]
    assert all(t.seconds is not None and 0 <= t.seconds < 10 for t in verdict.takeovers)
    assert verdict.refused_writes == [RefusedWrite("node-2", 3, "load", "the fence stands at 9")]


def test_run_keys_are_utc_instants_a_second_apart(tables: Tables) -> None:
    """Name a tick as JavaScript's toISOString prints it (C10.1), whatever the session's zone and style are (C3.5)."""
    tables.connection.execute("SET TimeZone = 'Australia/Lord_Howe'")
    tables.connection.execute("SET DateStyle = 'German'")
    ticks = tables.schedule(3)
    assert [tick.run_key for tick in ticks] == [f"{t.due_at:%Y-%m-%dT%H:%M:%S}.000Z" for t in ticks]
    assert (ticks[2].due_at - ticks[0].due_at).total_seconds() == 2
    assert [tick for tick, _ in tables.due_ticks()] == []


@pytest.mark.parametrize(
    ("doctored", "outcome", "doubles", "lost"),
    [
        ("INSERT INTO {schema}.totals SELECT * FROM {schema}.totals LIMIT 1", Outcome.DOUBLED, 1, 0),
        ("INSERT INTO {schema}.orders SELECT * FROM {schema}.orders LIMIT 1", Outcome.DOUBLED, 1, 0),
        ("DELETE FROM {schema}.totals WHERE ctid = '(0,1)'", Outcome.LOST, 0, 1),
        ('UPDATE {schema}."job-scheduler" SET "status" = \'FAIL\' WHERE "attempt" = 1', Outcome.LOST, 0, 2),
        ('DELETE FROM {schema}."job-scheduler" WHERE "attempt" = 1', Outcome.LOST, 0, 2),
        ("DELETE FROM {schema}.orders WHERE ctid = '(0,1)'", Outcome.INCOMPLETE, 0, 0),
        ("UPDATE {schema}.orders SET amount = amount + 1 WHERE ctid = '(0,1)'", Outcome.INCOMPLETE, 0, 0),
    ],
)
def test_a_doctored_database_is_found_out(
    tables: Tables,
    demo_service: JobSchedulerService,
    doctored: LiteralString,
    outcome: Outcome,
    doubles: int,
    lost: int,
) -> None:
    """See a double, a loss and a gap, and say so."""
    played(tables, demo_service)
    change(tables, doctored)
    verdict = judged(tables, demo_service)
    assert not verdict.ok
    assert (verdict.doubles, verdict.lost) == (doubles, lost)
    assert outcome in [run.outcome for run in verdict.runs]
    assert any(problem.startswith("Tick ") for problem in verdict.problems)


@pytest.mark.parametrize(
    ("doctored", "problem"),
    [
        ("DELETE FROM {schema}.events WHERE kind = 'killed'", "No node could be killed"),
        ("DELETE FROM {schema}.events WHERE kind = 'won' AND attempt = 2", "was not taken over"),
        ("DELETE FROM {schema}.events WHERE kind = 'refused'", "was not seen trying to write"),
        ("UPDATE {schema}.events SET kind = 'accepted' WHERE kind = 'refused'", "under a lease of the past"),
    ],
)
def test_a_demo_that_showed_nothing_is_not_ok(
    tables: Tables, demo_service: JobSchedulerService, doctored: LiteralString, problem: str
) -> None:
    """Claim nothing that was not seen: both faults, their takeovers, and refused writes are needed."""
    played(tables, demo_service)
    change(tables, doctored)
    assert any(problem in said for said in judged(tables, demo_service).problems)


def test_no_ticks_are_no_success(tables: Tables, demo_service: JobSchedulerService) -> None:
    """Call an empty database a failure."""
    assert not judged(tables, demo_service).ok


def test_a_double_needs_no_constraint_to_be_seen(connect: Connect) -> None:
    """Let doubles stand, so that they can be counted: neither orders nor totals have a unique index."""
    with connect() as tables:
        indexed = tables.rows(
            "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
            "WHERE c.relname IN ('orders', 'totals')"
        )
    assert indexed == []
