"""`tenure run --cron`, `--every` and `--tick`: one command a tick, on however many hosts (C10.2, C11)."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tenure import JobSchedulerService
from tests.cli.commands import Tenure, finished, named, only_row, shell, wait_for
from tests.support.rows import TABLE, execute
from tests.support.scheduling import CODE, TickNode, known_for, run_key
from tests.support.waiting import eventually

YEARLY = ("--cron", "0 0 1 1 *", "--max-lateness", "366d")
"""A schedule whose newest tick is the same for every host of a test, unless it runs on New Year's Eve."""


def new_year() -> datetime:
    return datetime(datetime.now(UTC).year, 1, 1, tzinfo=UTC)


def test_of_three_hosts_one_runs_the_tick(tenure: Tenure, database_url: str, tmp_path: Path) -> None:
    """C10.2: all mean the newest tick of the schedule; those that lose say why and when the next one is, exit 0."""
    going, ended = tmp_path / "going", tmp_path / "ended"
    script = (
        f"echo ran >> {named(going)}; while [ ! -e {named(ended)} ]; do sleep 0.02; done; echo $TENURE_SCHEDULED_AT"
    )
    with (
        tenure.start("run", "report", *YEARLY, *shell(script)) as first,
        tenure.start("run", "report", *YEARLY, *shell(script)) as second,
        tenure.start("run", "report", *YEARLY, *shell(script)) as third,
    ):
        hosts = [first, second, third]
        eventually(lambda: sum(host.poll() is not None for host in hosts) == 2, 30)
        ended.touch()
        done = [finished(host) for host in hosts]
    key = run_key(new_year())
    assert [each.code for each in done] == [0, 0, 0]
    assert sorted(each.out for each in done) == ["", "", f"{key}\n"]
    assert going.read_text() == "ran\n"
    following = f"; the next tick is at {new_year().year + 1}-01-01 00:00:00Z (in "
    for lost in (each.err for each in done if not each.out):
        assert f"tenure: Skipped: report {key} is held by " in lost
        assert following in lost
    assert execute(database_url, f'SELECT "runKey", "scheduledAt", "status"::text FROM {TABLE}') == [
        (key, new_year(), "SUCCESS")
    ]


def test_a_tick_that_was_done_is_not_run_again(tenure: Tenure) -> None:
    """C6.1: not by a host that asks late, which hears when it was done; `--skip-exit-code` tells it from a success."""
    assert tenure("run", "report", *YEARLY, *shell("echo a")).out == "a\n"
    assert tenure("run", "report", *YEARLY, *shell("echo b")).code == 0
    again = tenure("run", "report", *YEARLY, "--skip-exit-code", "9", *shell("echo b"))
    assert (again.code, again.out) == (9, "")
    assert f"Skipped: report {run_key(new_year())} was done at " in again.err


def test_a_tick_whose_host_died_is_run_by_another(tenure: Tenure, database_url: str, tmp_path: Path) -> None:
    """C4.5: the same tick, its next attempt."""
    began = tmp_path / "began"
    lease = ("--lease", "1s", "--heartbeat", "200ms")
    with tenure.start("run", "report", *YEARLY, *lease, *shell(f"echo $PPID > {named(began)}; sleep 60")) as host:
        os.kill(int(wait_for(began)), signal.SIGKILL)
        host.wait(20)
    heard: list[tuple[int, str]] = []

    def another() -> bool:
        done = tenure("run", "report", *YEARLY, *lease, "--skip-exit-code", "7", *shell("echo $TENURE_ATTEMPT"))
        heard.append((done.code, done.out))
        return done.code == 0

    eventually(another, 20)
    assert heard[-1] == (0, "2\n")
    assert {code for code, _ in heard[:-1]} <= {7}
    assert only_row(database_url)["attempt"] == 2


def test_every_counts_from_the_epoch(tenure: Tenure, database_url: str) -> None:
    """C10.1: the newest multiple of the period, which is thus the same on every host."""
    before = datetime.now(UTC)
    assert tenure("run", "beat", "--every", "12h", "--", "true").code == 0
    [(key, tick)] = execute(database_url, f'SELECT "runKey", "scheduledAt" FROM {TABLE}')
    assert key == run_key(tick)
    assert (tick - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(hours=12) == timedelta(0)
    assert timedelta(0) <= before - tick < timedelta(hours=12) or tick > before


def test_a_zone_decides_the_tick(tenure: Tenure) -> None:
    """C10.1: the first of January begins five and a half hours earlier in Kolkata."""
    done = tenure(
        "run", "x", *YEARLY, "--timezone", "Asia/Kolkata", *shell("echo $TENURE_SCHEDULED_AT $TENURE_RUN_KEY")
    )
    key = run_key(new_year() - timedelta(hours=5, minutes=30))
    assert done.out == f"{key} {key}\n"


def test_a_named_tick_is_run_and_said_to_be_late(tenure: Tenure, database_url: str) -> None:
    """`--tick` needs no schedule and knows no limit: a person has decided."""
    done = tenure("run", "x", "--tick", "2020-02-29T05:00:00+02:00", *shell("echo $TENURE_SCHEDULED_AT"))
    assert (done.code, done.out) == (0, "2020-02-29T03:00:00.000Z\n")
    assert "tenure: Running 2020-02-29T03:00:00.000Z, whose time was " in done.err
    assert execute(database_url, f'SELECT "scheduledAt" FROM {TABLE}') == [(datetime(2020, 2, 29, 3, tzinfo=UTC),)]


def test_a_tick_that_is_too_late_is_not_run(tenure: Tenure, database_url: str) -> None:
    """C10.5: and no row is written: a host with a larger limit may still run it."""
    done = tenure("run", "x", "--cron", "0 0 1 1 *", "--max-lateness", "1h", *shell("echo no"))
    assert (done.code, done.out) == (0, "")
    assert "late, --max-lateness is 1h" in done.err
    assert execute(database_url, f'SELECT "id" FROM {TABLE}') == []


def test_a_paused_job_is_not_run(tenure: Tenure, service: JobSchedulerService, database_url: str) -> None:
    """C10.5: whoever paused it, and why, is said."""
    TickNode(service).register(CODE)
    known_for(database_url, timedelta(days=400))
    assert tenure("pause", CODE, "--reason", "the disk is full").code == 0
    done = tenure("run", CODE, *YEARLY, *shell("echo no"))
    assert (done.code, done.out) == (0, "")
    assert f"Skipped: {CODE} {run_key(new_year())} is paused since " in done.err
    assert "the disk is full" in done.err
    assert execute(database_url, f'SELECT "id" FROM {TABLE}') == []
    assert tenure("resume", CODE).code == 0
    assert tenure("run", CODE, *YEARLY, *shell("echo yes")).out == "yes\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cron", "61 * * * *"], "^"),
        (["--cron", "* * * *"], "4 of 5 fields were given"),
        (["--cron", "* * * * *", "--timezone", "Mars/Base"], "Mars/Base"),
        (["--timezone", "UTC", "--run-key", "k"], "--timezone is that of --cron EXPRESSION"),
        (["--cron", "* * * * *", "--every", "1m"], "--cron and --every exclude each other"),
        (["--cron", "* * * * *", "--run-key", "k"], "Give one of --run-key KEY"),
        (["--tick", "2026-07-20T03:00:00"], "does not say its offset from UTC"),
        (["--tick", "soon"], "'soon' is no instant"),
        (["--tick", "2999-01-01T00:00:00Z"], "ahead of the database's clock"),
        (["--cron", "0 3 * * *", "--tick", "2026-07-20T04:00:00Z"], "is no tick of"),
        (["--run-key", "k", "--early", "1s"], "--early and --max-lateness are about a tick"),
        (["--cron", "* * * * *", "--early", "2m"], "it must be 0 to 1m"),
    ],
)
def test_what_is_no_tick_is_refused(tenure: Tenure, database_url: str, options: list[str], said: str) -> None:
    """C11: exit 2, what is wrong, and no row."""
    done = tenure("run", "x", *options, "--", "true")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert execute(database_url, f'SELECT "id" FROM {TABLE}') == []


def test_a_bad_expression_has_a_caret_below_it(tenure: Tenure) -> None:
    """C10.1: below the very field, whatever stands before the line."""
    lines = tenure("run", "x", "--cron", "0 25 * * *", "--", "true").err.splitlines()
    assert lines[-1].index("^") == lines[-2].index("25")
