"""`tenure pause`, `resume`, `trigger` and `prune`: what they leave in the rows, and what they say (C10.5, C10.7)."""

from __future__ import annotations

import getpass
import socket
from datetime import UTC, datetime, timedelta

import pytest

from tenure import JobAcquireOptions, JobSchedulerService
from tests.cli.commands import Tenure
from tests.support.rows import TABLE, execute
from tests.support.scheduling import CODE, JOBS, TickNode, known_for, make_old, run_key

ME = f"{getpass.getuser()}@{socket.gethostname()}"
DAILY = {"kind": "cron"}


@pytest.fixture
def node(service: JobSchedulerService) -> TickNode:
    """A node that is alive and has registered the job, every minute."""
    made = TickNode(service)
    made.register(CODE, policy=DAILY)
    return made


def paused(url: str) -> tuple[object, ...]:
    [row] = execute(url, f'SELECT "pausedAt" IS NOT NULL, "pausedBy", "pauseReason" FROM {JOBS}')
    return row


@pytest.mark.usefixtures("node")
def test_pause_and_resume_keep_who_and_why(tenure: Tenure, database_url: str) -> None:
    """C10.5: on the job's row, for those who look."""
    done = tenure("pause", CODE, "--reason", "the disk is full")
    assert (done.code, done.out, done.err) == (0, f"{CODE}: paused by {ME}\n", "")
    assert paused(database_url) == (True, ME, "the disk is full")
    assert "paused since " in tenure("next").out
    done = tenure("resume", CODE, "--reason", "it was emptied")
    assert (done.code, done.out) == (0, f"{CODE}: resumed by {ME}\n")
    assert paused(database_url) == (False, ME, "it was emptied")
    assert "paused" not in tenure("next").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["pause", "no-such", "--reason", "r"], 1, "Nothing was paused: there is no job no-such. See: tenure next"),
        (["resume", "no-such"], 1, "Nothing was resumed: there is no job no-such. See: tenure next"),
        (["trigger", "no-such"], 1, "Nothing was asked for: no job no-such was ever registered."),
        (["pause", "x"], 2, "Missing option '--reason'"),
        (["pause", "x", "--reason", " "], 2, "it says nothing"),
        (["pause", "x" * 65, "--reason", "r"], 2, "code must hold 1 to 64"),
        (["prune", "--keep", "1m"], 2, "keep must be a timedelta of at least 1 hour"),
        (["prune", "--keep", "x"], 2, "'x' is not a duration"),
    ],
)
def test_what_cannot_be_done_is_said(tenure: Tenure, arguments: list[str], code: int, said: str) -> None:
    """C11: exit 1 for a job that is not there, 2 for a bad command line."""
    done = tenure(*arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_a_triggered_run_is_taken_up_by_a_node(tenure: Tenure, node: TickNode, database_url: str) -> None:
    """C10.6: a run with a key of its own, which stands unfinished until a node that runs the job takes it."""
    done = tenure("trigger", CODE, "--json")
    assert done.code == 0
    told = done.json
    assert told["run_key"].startswith("manual:")
    [unfinished] = [run for run in node.unfinished(CODE).runs if run.run_key == told["run_key"]]
    assert unfinished.run_key is not None
    taken = node.retake(JobAcquireOptions(code=CODE, run_key=unfinished.run_key, lease_ms=60_000))
    assert taken.won is not None
    assert tenure("show", told["idempotency_key"], "--json").json["status"] == "RUNNING"


@pytest.mark.usefixtures("node")
def test_trigger_for_a_tick(tenure: Tenure, database_url: str) -> None:
    """The run stands for a tick that the schedule has, and the tick's own run stays as it is."""
    tick = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    done = tenure("trigger", CODE, "--at", tick.isoformat())
    assert done.code == 0
    assert f"{CODE}: asked for manual:{run_key(tick)}:" in done.out
    assert execute(database_url, f'SELECT "scheduledAt" FROM {TABLE}') == [(tick,)]
    off = tenure("trigger", CODE, "--at", (tick + timedelta(seconds=5)).isoformat())
    assert (off.code, "is no tick of" in off.err) == (2, True)
    coming = tenure("trigger", CODE, "--at", (tick + timedelta(hours=2)).isoformat())
    assert (coming.code, "is still to come" in coming.err) == (2, True)


def test_nobody_waits_unawares_for_a_run(tenure: Tenure, node: TickNode, database_url: str) -> None:
    """A job that no node runs is not triggered unless asked to; of a paused one that is said."""
    assert tenure("pause", CODE, "--reason", "r").code == 0
    said = tenure("trigger", CODE)
    assert (said.code, f"The job is paused by {ME}" in said.err) == (0, True)
    execute(database_url, 'UPDATE "job-scheduler_nodes" SET "seenAt" = "seenAt" - interval \'1 hour\'')
    refused = tenure("trigger", CODE)
    assert (refused.code, f"no node that runs {CODE} was heard of for 1m" in refused.err) == (1, True)
    assert tenure("trigger", CODE, "--anyway").code == 0
    assert len(execute(database_url, f'SELECT "id" FROM {TABLE}')) == 2


def test_prune_removes_what_is_old_and_no_more(tenure: Tenure, node: TickNode, database_url: str) -> None:
    """C10.7: ended ticks beyond `--keep`; what was removed is not run again, and says why."""
    ticks = [datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=n) for n in (3, 2, 1)]
    known_for(database_url, timedelta(days=1))
    for tick in ticks:
        won = node.claim(tick).won
        assert won is not None
        node.service.complete(won)
    initial = node.service.acquire(JobAcquireOptions(code="seed", type="INITIAL"))
    assert initial.acquired
    node.service.complete(initial)
    make_old(database_url, timedelta(days=3))
    execute(database_url, f'UPDATE {TABLE} SET "finishedAt" = clock_timestamp() WHERE "scheduledAt" = %s', ticks[2])
    done = tenure("prune", "--keep", "1d")
    assert (done.code, done.out) == (0, "2 runs removed\n")
    assert tenure("prune", "--keep", "1d").out == "0 runs removed\n"
    left = {row[0] for row in execute(database_url, f'SELECT "runKey" FROM {TABLE}')}
    assert left == {run_key(ticks[2]), None}
    again = tenure("run", CODE, "--tick", ticks[0].isoformat(), "--", "true")
    assert (again.code, "was decided before: its row was removed" in again.err) == (0, True)
