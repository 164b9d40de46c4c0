"""`tenure run` when its lease is lost: the command is stopped, and we exit 75 (C5.5, C5.6)."""

from __future__ import annotations

import time
from pathlib import Path

from tests.cli.commands import Tenure, finished, named, only_row, shell, take_over, wait_for
from tests.support.proxy import FaultProxy
from tests.support.waiting import eventually

RUN = ("run", "x", "--run-key", "k", "--lease", "900ms", "--heartbeat", "200ms")
FOREVER = "while :; do sleep 0.02; done"


def is_gone(pid: int) -> bool:
    """Say whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_command_whose_run_was_taken_over_is_asked_to_end(tenure: Tenure, database_url: str, tmp_path: Path) -> None:
    """SIGTERM at once; the row is the new owner's and is left alone (C6.1)."""
    ready, heard = tmp_path / "ready", tmp_path / "heard"
    trap = f"trap 'echo TERM > {named(heard)}; exit 0' TERM"
    with tenure.start(*RUN, *shell(f"{trap}; echo > {named(ready)}; {FOREVER}")) as process:
        wait_for(ready)
        take_over(database_url)
        done = finished(process)
    assert done.code == 75
    assert heard.read_text() == "TERM\n"
    assert "tenure: The lease is lost (taken over). Stopping the command.\n" in done.err
    row = only_row(database_url)
    assert (row["status"], row["attempt"], row["data"]) == ("RUNNING", 2, None)


def test_a_command_that_will_not_end_is_killed_after_the_grace(
    tenure: Tenure, database_url: str, tmp_path: Path
) -> None:
    """With all of its process group, and not before the grace is over."""
    ready = tmp_path / "ready"
    deaf = f"trap '' TERM; sh -c 'echo $$ > {named(ready)}; {FOREVER}' & {FOREVER}"
    with tenure.start(*RUN, "--grace", "600ms", *shell(deaf)) as process:
        descendant = int(wait_for(ready))
        took_over_s = time.monotonic()
        take_over(database_url)
        assert finished(process).code == 75
        assert time.monotonic() - took_over_s >= 0.6
    eventually(lambda: is_gone(descendant))


def test_what_the_command_leaves_behind_is_granted_the_same_grace(
    tenure: Tenure, database_url: str, tmp_path: Path
) -> None:
    """A descendant that outlives the command still works for the lost run."""
    ready = tmp_path / "ready"
    deaf = f"(trap '' TERM; echo > {named(ready)}; exec sh -c 'echo $$ > {named(ready)}; {FOREVER}') > /dev/null 2>&1 &"
    with tenure.start(*RUN, "--grace", "300ms", *shell(f"{deaf} wait")) as process:
        eventually(lambda: wait_for(ready).strip())
        descendant = int(wait_for(ready))
        take_over(database_url)
        assert finished(process).code == 75
    eventually(lambda: is_gone(descendant))


def test_a_stopped_command_is_stopped_for_good(tenure: Tenure, database_url: str, tmp_path: Path) -> None:
    """One that hangs in SIGSTOP is woken to hear SIGTERM, long before the grace is over."""
    ready = tmp_path / "ready"
    with tenure.start(*RUN, "--grace", "50s", *shell(f"echo $$ > {named(ready)}; kill -STOP $$; {FOREVER}")) as process:
        pid = int(wait_for(ready))
        eventually(lambda: " T " in Path(f"/proc/{pid}/stat").read_text())
        take_over(database_url)
        assert finished(process).code == 75


def test_silence_of_the_database_is_a_loss_at_the_local_deadline(database_url: str, tmp_path: Path) -> None:
    """Before any rival may take the run, though the renewal still hangs (C3.6, C5.5)."""
    ready = tmp_path / "ready"
    with FaultProxy.in_front_of(database_url) as proxy:
        tenure = Tenure(proxy.url(database_url))
        with tenure.start(*RUN, *shell(f"trap 'exit 0' TERM; echo > {named(ready)}; {FOREVER}")) as process:
            wait_for(ready)
            proxy.black_hole()
            done = finished(process)
    assert done.code == 75
    assert "The lease is lost (unreachable). Stopping the command." in done.err
    assert only_row(database_url)["status"] == "RUNNING"


def test_without_renewal_the_lease_ends_by_itself(tenure: Tenure, database_url: str) -> None:
    """`--heartbeat 0`: the run is given back, and the next attempt may begin (C3.2, C5.5)."""
    expiring = ("run", "x", "--run-key", "k", "--lease", "300ms", "--heartbeat", "0")
    done = tenure(*expiring, "--", "sleep", "60")
    assert done.code == 75
    assert "The lease is lost (expired)" in done.err
    assert only_row(database_url)["status"] == "FAIL"


def test_a_run_that_was_taken_when_its_command_ended_is_lost(tenure: Tenure, database_url: str, tmp_path: Path) -> None:
    """The outcome of a command that nobody stopped is not written over the new owner's run (C6.5)."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    script = f"echo > {named(ready)}; while [ ! -e {named(go)} ]; do sleep 0.02; done; exit 3"
    for exit_code in "0", "3":
        go.unlink(missing_ok=True)
        ready.unlink(missing_ok=True)
        key = f"ends with {exit_code}"
        with tenure.start(
            "run", "x", "--run-key", key, *shell(script.replace("exit 3", f"exit {exit_code}"))
        ) as process:
            wait_for(ready)
            take_over(database_url)
            go.touch()
            done = finished(process)
        assert done.code == 75
        assert done.err == "tenure: The run is not ours any more (taken over): how the command ended is not recorded.\n"


def test_a_reader_of_stderr_that_stalls_does_not_keep_a_lost_command_alive(
    tenure: Tenure, database_url: str, tmp_path: Path
) -> None:
    """Nobody reads our stderr and the pipe is full; the command is stopped all the same."""
    ready = tmp_path / "ready"
    noisy = f"trap '' TERM; echo $$ > {named(ready)}; while :; do echo {'x' * 1000} >&2; done"
    with tenure.start(*RUN, "--grace", "100ms", *shell(noisy)) as process:
        pid = int(wait_for(ready))
        take_over(database_url)
        eventually(lambda: is_gone(pid), 20.0)
        assert process.wait(20) == 75
