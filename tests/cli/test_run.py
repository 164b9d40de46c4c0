"""`tenure run`: what the command sees, what the row keeps, and the exit codes (C4.4, C6.1)."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure import JobAcquired, JobAcquireOptions, JobSchedulerService
from tests.cli.commands import Finished, Tenure, finished, named, only_row, owner_token, shell, wait_for
from tests.support.proxy import FaultProxy
from tests.support.rows import age, execute

KEY = ("--run-key", "2026-07-20T03:00:00.000Z")


def test_the_exit_code_of_the_command_is_ours_and_decides_the_outcome(tenure: Tenure, database_url: str) -> None:
    """Non-zero is FAIL, which the next attempt may mend; zero is SUCCESS, for ever (C6.1)."""
    failed = tenure("run", "nightly", *KEY, *shell("echo no luck >&2; exit 3"))
    assert (failed.code, failed.err) == (3, "no luck\n")
    assert only_row(database_url) | {"id": None} == {
        "status": "FAIL",
        "attempt": 1,
        "data": {"exitCode": 3, "stderr": "no luck\n"},
        "name": None,
        "lease_ms": 900_000,
        "id": None,
    }
    assert tenure("run", "nightly", *KEY, *shell("echo fine >&2")).code == 0
    row = only_row(database_url)
    assert (row["status"], row["attempt"], row["data"]) == ("SUCCESS", 2, {"exitCode": 0, "stderr": "fine\n"})


def test_the_command_is_told_who_it_is_but_not_the_owner_token(tenure: Tenure, database_url: str) -> None:
    """Four variables, with the run key as it contends (trimmed); the secret of the lease stays with us (C4.3, C11)."""
    told = tenure("run", " nightly ", "--run-key", " päivä ", "--", "env")
    assert told.code == 0
    environment = dict(line.split("=", 1) for line in told.out.splitlines() if line.startswith("TENURE_"))
    [(key, token)] = execute(database_url, 'SELECT "lockKey", "fencingToken" FROM public."job-scheduler"')
    assert environment == {
        "TENURE_IDEMPOTENCY_KEY": key,
        "TENURE_FENCING_TOKEN": str(token),
        "TENURE_ATTEMPT": "1",
        "TENURE_RUN_KEY": "päivä",
        "TENURE_DATABASE_URL": database_url,
    }
    assert owner_token(database_url) not in told.out + told.err


def test_an_initial_run_has_no_run_key(database_url: str) -> None:
    """Not even one that an outer `tenure run` left in the environment (C2.4)."""
    inner = Tenure(database_url, {"TENURE_RUN_KEY": "outer"})
    assert inner("run", "seed", "--initial", *shell('echo "<${TENURE_RUN_KEY-none}>"')).out == "<none>\n"
    assert inner("run", "seed", "--initial", "--skip-exit-code", "9", "--", "true").code == 9


def test_stdin_and_stdout_are_the_commands(tenure: Tenure) -> None:
    """What is piped in and out passes through untouched."""
    done = tenure("run", "pipe", *KEY, "--", "cat", stdin=b"\xc3\xa4\n")
    assert (done.code, done.out) == (0, "ä\n")


def test_options_reach_the_row(tenure: Tenure, database_url: str) -> None:
    """Name, lease and heartbeat are those that were given (C1.1, C3)."""
    options = ("--name", "Nightly load", "--lease", "1h30m", "--heartbeat", "0")
    assert tenure("run", "nightly", *KEY, *options, "--grace", "250ms", "--", "true").code == 0
    row = only_row(database_url)
    assert (row["name"], row["lease_ms"]) == ("Nightly load", 5_400_000)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x", "--", "true"], "Give one of --run-key KEY, --initial, --cron EXPRESSION, --every DURATION and --tick"),
        (
            ["x", "--initial", *KEY, "--", "true"],
            "Give one of --run-key KEY, --initial, --cron EXPRESSION, --every DURATION and --tick",
        ),
        (["x", *KEY], "Missing argument '-- COMMAND"),
        (["x", "--run-key", " ", "--", "true"], "run_key must hold 1 to 1,024"),
        (["x" * 65, *KEY, "--", "true"], "code must hold 1 to 64"),
        (["x", *KEY, "--name", "n" * 257, "--", "true"], "name must hold at most 256"),
        (["x", *KEY, "--lease", "5x", "--", "true"], "'--lease': '5x' is not a duration"),
        (["x", *KEY, "--lease", "2ms", "--", "true"], "lease_ms must be an int of 3"),
        (["x", *KEY, "--lease", "10s", "--heartbeat", "5s", "--", "true"], "heartbeat_ms must be"),
        (["x", *KEY, "--grace", "-1s", "--", "true"], "is not a duration"),
        (["x", *KEY, "--skip-exit-code", "256", "--", "true"], "--skip-exit-code"),
        (["x", *KEY, "--table", "", "--", "true"], "table must be 1 to"),
        (["x", *KEY, "--no-such-option", "--", "true"], "No such option"),
        (["x", *KEY, "--embedded", "--database-url", "postgres://h/d", "--", "true"], "exclude each other"),
        (["\udcff", *KEY, "--", "true"], "code"),
    ],
)
def test_bad_options_are_refused_before_anything_is_sent(
    tenure: Tenure, database_url: str, arguments: list[str], said: str
) -> None:
    """Exit 2, one line that names the option, no row (C2.1, C11)."""
    done = tenure("run", *arguments)
    assert done.code == 2
    assert done.err.startswith("tenure: ")
    assert said in done.err
    assert execute(database_url, 'SELECT FROM public."job-scheduler"') == []


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [("no-such-command", 127, "command not found"), ("/etc/passwd", 126, "Permission denied")],
)
def test_a_command_that_cannot_be_started_is_a_failure(
    tenure: Tenure, database_url: str, command: str, code: int, said: str
) -> None:
    """With the exit codes of a shell, and the reason in the row; the next attempt may run."""
    done = tenure("run", "x", *KEY, "--", command)
    assert done.code == code
    assert said in done.err
    row = only_row(database_url)
    assert row["status"] == "FAIL"
    assert row["data"]["exitCode"] == code
    assert said in row["data"]["stderr"]


def test_a_command_killed_by_a_signal_exits_as_in_a_shell(tenure: Tenure, database_url: str) -> None:
    """128 + N, in the row too."""
    assert tenure("run", "x", *KEY, *shell("kill -9 $$")).code == 137
    assert only_row(database_url)["data"]["exitCode"] == 137


def acquired(service: JobSchedulerService) -> JobAcquired:
    """Hold the run of this module's key."""
    won = service.acquire(JobAcquireOptions(code="x", run_key=KEY[1]))
    assert won.acquired
    return won


def test_a_run_held_elsewhere_is_skipped_with_one_line(tenure: Tenure, service: JobSchedulerService) -> None:
    """It says who holds it since when, and when its lease would expire; the exit code is ours to choose (C4.4)."""
    acquired(service)
    for options, code in ([], 0), (["--skip-exit-code", "75"], 75):
        done = tenure("run", "x", *KEY, *options, *shell("echo ran"))
        assert (done.code, done.out) == (code, "")
        assert done.err.count("\n") == 1
        assert f"tenure: Skipped: x {KEY[1]} is held by node-a since 20" in done.err
        assert "attempt 1; unless renewed, its lease expires at 20" in done.err
        assert "Z (in 14m" in done.err


def test_a_run_done_elsewhere_is_skipped_with_one_line(tenure: Tenure, service: JobSchedulerService) -> None:
    """It says when it was done, and by whom (C4.4)."""
    service.complete(acquired(service))
    done = tenure("run", "x", *KEY, "--skip-exit-code", "3", *shell("echo ran"))
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
    assert "was done at 20" in done.err
    assert "ago) by node-a, attempt 1." in done.err


def test_a_run_that_is_just_being_taken_is_skipped(
    tenure: Tenure, service: JobSchedulerService, database_url: str
) -> None:
    """A locked row is a loss, at once and without details (C4.1)."""
    won = acquired(service)
    service.fail(won)
    with psycopg.connect(database_url) as other:
        other.execute('SELECT FROM public."job-scheduler" WHERE "id" = %s FOR UPDATE', [won.id])
        done = tenure("run", "x", *KEY, "--skip-exit-code", "3", "--", "true")
    assert done.code == 3
    assert "is just being taken by another node" in done.err


def test_of_two_that_race_one_runs_the_command(tenure: Tenure, tmp_path: Path) -> None:
    """And the other skips, whichever comes first (C4.1)."""
    go, ran = tmp_path / "go", tmp_path / "ran"
    script = shell(f"echo $$ >> {named(ran)}; while [ ! -e {named(go)} ]; do sleep 0.02; done")
    with (
        tenure.start("run", "x", *KEY, "--skip-exit-code", "9", *script) as one,
        tenure.start("run", "x", *KEY, "--skip-exit-code", "9", *script) as other,
    ):
        wait_for(ran)
        codes: set[int] = set()
        while not codes:
            codes = {process.returncode for process in (one, other) if process.poll() is not None}
        assert codes == {9}
        go.touch()
        assert sorted([finished(one).code, finished(other).code]) == [0, 9]
    assert len(ran.read_text().splitlines()) == 1


def test_after_sigkill_another_node_takes_the_run_over(tenure: Tenure, database_url: str, tmp_path: Path) -> None:
    """With attempt 2, once the lease has expired and not before (C4.1, C4.3)."""
    pid = tmp_path / "pid"
    with tenure.start("run", "x", *KEY, *shell(f"echo $$ > {named(pid)}; exec sleep 60 > /dev/null 2>&1")) as killed:
        orphan = int(wait_for(pid))
        killed.kill()
        killed.wait()
    os.kill(orphan, signal.SIGKILL)
    assert tenure("run", "x", *KEY, "--skip-exit-code", "9", "--", "true").code == 9
    age(database_url, only_row(database_url)["id"], timedelta(minutes=15))
    done = tenure("run", "x", *KEY, *shell("echo $TENURE_ATTEMPT"))
    assert (done.code, done.out) == (0, "2\n")


def run_while_cut_off(database_url: str, tmp_path: Path, exit_code: int, lease: str) -> tuple[Finished, dict[str, Any]]:
    """Let a command end while the database cannot be reached."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    script = f"echo > {named(begun)}; while [ ! -e {named(go)} ]; do sleep 0.02; done; exit {exit_code}"
    with FaultProxy.in_front_of(database_url) as proxy:
        tenure = Tenure(proxy.url(database_url))
        with tenure.start("run", "x", *KEY, "--lease", lease, "--heartbeat", "0", *shell(script)) as process:
            wait_for(begun)
            proxy.refuse_new(True)
            proxy.reset_all()
            go.touch()
            done = finished(process)
    return done, only_row(database_url)


def test_a_success_that_cannot_be_recorded_is_said(database_url: str, tmp_path: Path) -> None:
    """Exit 74; never FAIL: the row is left to expire (C6.4)."""
    done, row = run_while_cut_off(database_url, tmp_path, 0, "3s")
    assert done.code == 74
    assert "The command succeeded, but that could not be recorded: The database cannot be reached" in done.err
    assert row["status"] == "RUNNING"


def test_a_failure_that_cannot_be_recorded_keeps_the_commands_exit_code(database_url: str, tmp_path: Path) -> None:
    """Recording never masks what happened (C6.3)."""
    done, row = run_while_cut_off(database_url, tmp_path, 5, "3s")
    assert done.code == 5
    assert "could not be recorded; its lease will expire" in done.err
    assert row["status"] == "RUNNING"


def test_the_command_keeps_the_bytes_of_its_arguments(tenure: Tenure) -> None:
    """Options after `--` are the command's, and so is what is no UTF-8."""
    script = "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])"
    done = tenure("run", "x", *KEY, "--", sys.executable, "-c", script, "--lease", "--", "\udcff")
    assert done.out == f"{[b'--lease', b'--', bytes([255])]}\n"
