"""`tenure run` and signals: forwarded once, and as PID 1, and on a terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import TENURE, Process, Tenure, finished, named, only_row, shell, wait_for
from tests.support.proxy import FaultProxy
from tests.support.rows import execute
from tests.support.waiting import eventually

FORWARDED = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")
RUN = ("run", "x", "--run-key", "k")

as_pid_1 = pytest.mark.skipif(
    os.geteuid() != 0
    or not shutil.which("unshare")
    or subprocess.run(["unshare", "--fork", "--pid", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs root and unshare --pid, to be PID 1 of a namespace",
)


def listener(folder: Path) -> list[str]:
    """Give a command that logs each signal it gets, and ends with 7 when it is told to by a file."""
    traps = "; ".join(f"trap 'echo {name} >> {named(folder / 'log')}' {name}" for name in FORWARDED)
    wait = f"while [ ! -e {named(folder / 'stop')} ]; do sleep 0.02; done; exit 7"
    return shell(f"{traps}; echo > {named(folder / 'ready')}; {wait}")


def log(folder: Path) -> list[str]:
    """Give the signals that the command got."""
    return (folder / "log").read_text().splitlines() if (folder / "log").exists() else []


def wait_for_signals(folder: Path, count: int) -> None:
    """Wait until the command got so many signals."""
    eventually(lambda: len(log(folder)) >= count)


def takes_signals(pid: int) -> bool:
    """Say whether a process has a handler for SIGTERM yet."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_each_signal_reaches_the_command_once(tenure: Tenure, database_url: str, tmp_path: Path) -> None:
    """Whichever of the six it is; the command decides what comes of it."""
    with tenure.start(*RUN, *listener(tmp_path)) as process:
        wait_for(tmp_path / "ready")
        for count, name in enumerate(FORWARDED, start=1):
            process.send_signal(signal.Signals[f"SIG{name}"])
            wait_for_signals(tmp_path, count)
        (tmp_path / "stop").touch()
        done = finished(process)
    assert done.code == 7
    assert log(tmp_path) == list(FORWARDED)
    assert only_row(database_url)["status"] == "FAIL"


def test_signals_reach_the_descendants_of_the_command(tenure: Tenure, tmp_path: Path) -> None:
    """The whole process group gets them, so that a shell's own children end too."""
    ready, heard = tmp_path / "ready", tmp_path / "heard"
    inner = f"trap 'echo heard > {named(heard)}; exit' TERM; echo > {named(ready)}; while :; do sleep 0.02; done"
    with tenure.start(*RUN, *shell(f"sh -c {shlex.quote(inner)} & wait")) as process:
        wait_for(ready)
        process.terminate()
        assert finished(process).code == 143
    wait_for(heard)


def test_a_command_ended_by_a_forwarded_signal_exits_as_in_a_shell(
    tenure: Tenure, database_url: str, tmp_path: Path
) -> None:
    """128 + 15, and FAIL, so that another node may run it."""
    with tenure.start(*RUN, *shell(f"echo > {named(tmp_path / 'ready')}; exec sleep 60")) as process:
        wait_for(tmp_path / "ready")
        process.terminate()
        assert finished(process).code == 143
    row = only_row(database_url)
    assert (row["status"], row["data"]) == ("FAIL", {"exitCode": 143, "stderr": ""})


def test_an_ignored_signal_stays_ignored(tenure: Tenure, tmp_path: Path) -> None:
    """As under nohup: neither we nor the command end by a hang-up."""
    ignoring = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    with tenure.start(*RUN, *listener(tmp_path), before=ignoring) as process:
        wait_for(tmp_path / "ready")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        eventually(lambda: log(tmp_path))
        (tmp_path / "stop").touch()
        assert finished(process).code == 7
    assert log(tmp_path) == ["USR1"]


def test_a_signal_before_the_command_has_begun_keeps_it_from_beginning(database_url: str, tmp_path: Path) -> None:
    """The run that was won meanwhile is given back at once."""
    with FaultProxy.in_front_of(database_url) as proxy:
        proxy.black_hole()
        with Tenure(proxy.url(database_url)).start(*RUN, *shell(f"echo > {named(tmp_path / 'ran')}")) as process:
            eventually(lambda: proxy.connections and takes_signals(process.pid))
            process.terminate()
            assert process.stderr
            assert b"SIGTERM: ending as soon as the database has answered" in process.stderr.readline()
            proxy.heal()
            assert finished(process).code == 143
    assert not (tmp_path / "ran").exists()
    row = only_row(database_url)
    assert (row["status"], row["data"]["exitCode"]) == ("FAIL", 143)


def test_a_second_signal_ends_us_at_once(database_url: str) -> None:
    """Even while the database does not answer."""
    with FaultProxy.in_front_of(database_url) as proxy:
        proxy.black_hole()
        with Tenure(proxy.url(database_url)).start(*RUN, "--", "true") as process:
            eventually(lambda: proxy.connections and takes_signals(process.pid))
            process.terminate()
            assert process.stderr
            process.stderr.readline()
            process.send_signal(signal.SIGINT)
            done = finished(process)
    assert (done.code, done.err.count("\n")) == (130, 1)
    assert "Given up at once on SIGINT" in done.err


def namespaced(process: Process) -> int:
    """Give the pid, as seen from here, of the process that is PID 1 in the namespace."""

    def only_child() -> int:
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return int(listed[0]) if listed else 0

    return eventually(only_child)


UNSHARE = ("unshare", "--fork", "--pid", "--kill-child")


@as_pid_1
def test_as_pid_1_signals_are_forwarded(tenure: Tenure, tmp_path: Path) -> None:
    """The kernel drops what PID 1 has no handler for."""
    with tenure.start(*RUN, *listener(tmp_path), before=UNSHARE) as process:
        wait_for(tmp_path / "ready")
        ours = namespaced(process)
        for count, name in enumerate(FORWARDED, start=1):
            os.kill(ours, signal.Signals[f"SIG{name}"])
            wait_for_signals(tmp_path, count)
        (tmp_path / "stop").touch()
        done = finished(process)
    assert (done.code, log(tmp_path)) == (7, list(FORWARDED))


ORPHAN = """
import os, time
read, write = os.pipe()
if (middle := os.fork()) == 0:
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os._exit(0)
    os._exit(0)
os.waitpid(middle, 0)
assert os.getppid() == 1
orphan = int(os.read(read, 100))
while True:
    try:
        os.kill(orphan, 0)
    except ProcessLookupError:
        break
    time.sleep(0.01)
print("reaped")
"""


@as_pid_1
def test_as_pid_1_orphans_are_reaped(tenure: Tenure, database_url: str) -> None:
    """And the command's own exit code is told from theirs."""
    with tenure.start(*RUN, "--", sys.executable, "-c", ORPHAN, before=UNSHARE) as process:
        done = finished(process)
    assert (done.code, done.out, done.err) == (0, "reaped\n", "")
    assert only_row(database_url)["status"] == "SUCCESS"


ON_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def on_terminal() -> tuple[str, ...]:
    """Give what runs a command line on a terminal of its own, fed from stdin."""
    return (sys.executable, "-c", ON_TERMINAL)


def test_on_a_terminal_the_command_reads_from_it(tenure: Tenure) -> None:
    """It is in the foreground, as without us."""
    with tenure.start(
        *RUN, *shell('read line; echo "<$line>"'), before=on_terminal(), stdin=subprocess.PIPE
    ) as process:
        assert process.stdin
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        eventually(lambda: process.poll() is not None, 20.0)
        assert process.stdout
        assert b"<hello>" in process.stdout.read()
        assert process.returncode == 0


def test_on_a_terminal_an_interrupt_comes_once(tenure: Tenure, database_url: str, tmp_path: Path) -> None:
    """^C goes from the terminal to the command and to us; we do not hand it on again."""
    with tenure.start(*RUN, *listener(tmp_path), before=on_terminal(), stdin=subprocess.PIPE) as process:
        wait_for(tmp_path / "ready")
        assert process.stdin
        process.stdin.write(b"\x03")
        process.stdin.flush()
        eventually(lambda: log(tmp_path))
        (tmp_path / "stop").touch()
        eventually(lambda: process.poll() is not None, 20.0)
        assert process.returncode == 7
    assert log(tmp_path) == ["INT"]
    assert only_row(database_url)["data"]["exitCode"] == 7


def test_an_interrupt_while_reading_is_no_traceback(database_url: str) -> None:
    """`tenure ls` ends with 130 when it is interrupted before the database has answered (C11)."""
    with FaultProxy.in_front_of(database_url) as proxy:
        proxy.black_hole()
        with Tenure(proxy.url(database_url)).start("ls") as process:
            eventually(lambda: proxy.connections)
            process.send_signal(signal.SIGINT)
            done = finished(process)
    assert (done.code, done.out) == (130, "")
    assert execute(database_url, 'SELECT FROM public."job-scheduler"') == []


def test_the_test_command_is_the_installed_one() -> None:
    """`python -m tenure` and the script are the same function."""
    assert subprocess.run([*TENURE, "--version"], capture_output=True, check=True).stdout.startswith(b"tenure ")
