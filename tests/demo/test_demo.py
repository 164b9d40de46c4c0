"""`tenure demo` as people run it: real processes, real signals, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.embedding import is_gone, on_linux
from tests.support.rows import execute
from tests.support.waiting import eventually

Start = Callable[..., subprocess.Popen[str]]
LIMIT_S = 60


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `tenure demo` as the leader of a process group, as a shell does; kill what is left of it."""
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str, **environment: str) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("TENURE_DATABASE_URL", "DATABASE_URL")}
        process = subprocess.Popen(
            [sys.executable, "-m", "tenure", "demo", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **environment},
            process_group=0,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def processes() -> dict[int, tuple[int, str]]:
    """Give parent and state of every process."""
    shown = subprocess.run(["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    return {int(pid): (int(ppid), state) for pid, ppid, state in (line.split() for line in shown.splitlines())}


def descendants(pid: int) -> set[int]:
    """Give all processes below that one."""
    everything = processes()
    found: set[int] = set()
    while more := {p for p, (parent, _) in everything.items() if parent in {pid, *found}} - found:
        found |= more
    return found


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Read the output up to the line that holds the text."""
    assert process.stdout
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError("".join([*lines, process.stderr.read() if process.stderr else ""]))


def demo_schemas(url: str) -> list[str]:
    return [name for (name,) in execute(url, r"SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tenure\_demo\_%%'")]


def test_nothing_is_doubled_or_lost(start: Start) -> None:
    """Survive SIGKILL and SIGSTOP with one load a tick; refuse the woken node all its writes (C4.3, C5.5, C6.1)."""
    demo = start("--ticks", "6", "--seed", "5", "--json")
    out, err = demo.communicate(timeout=LIMIT_S)
    assert (demo.returncode, err) == (0, "")
    verdict: dict[str, Any] = json.loads(out)
    assert verdict["ok"] is True
    assert (verdict["nodes"], verdict["ticks"], verdict["seed"]) == (3, 6, 5)
    assert (verdict["doubles"], verdict["lost"], verdict["double_orders"], verdict["accepted_writes"]) == (0, 0, 0, 0)
    assert [(run["loads"], run["orders"]) for run in verdict["runs"]] == [(1, 2400)] * 6
    assert sum(verdict["winners"].values()) == 6
    assert {t["cause"] for t in verdict["takeovers"]} >= {"killed", "stopped"}
    assert all(t["attempt"] >= 2 and t["from_node"] != t["to_node"] for t in verdict["takeovers"])
    woken = {t["from_node"] for t in verdict["takeovers"] if t["cause"] == "stopped"}
    refused = {write["operation"] for write in verdict["refused_writes"] if write["node"] in woken}
    assert refused == {"heartbeat", "load", "complete", "fail", "release"}


def test_two_nodes_on_a_database_of_the_users(start: Start, database_url: str) -> None:
    """Replace the killed node, keep to a schema of its own that is gone at the end, write plain lines to a pipe."""
    before = execute(database_url, 'SELECT count(*) FROM public."job-scheduler"')
    demo = start("--nodes", "2", "--ticks", "5", "--seed", "1", DATABASE_URL=database_url)
    opening = read_until(demo, "won tick 1")
    assert len(demo_schemas(database_url)) == 1
    assert opening[0].startswith("2 nodes")
    assert "seed 1" in opening[3]
    commands = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    assert "tenure.demo.node" in commands
    password = psycopg.conninfo.conninfo_to_dict(database_url)["password"]
    assert isinstance(password, str)
    assert password not in commands
    out, err = demo.communicate(timeout=LIMIT_S)
    assert (demo.returncode, err) == (0, "")
    text = "".join([*opening, out])
    assert "\x1b" not in text
    for part in (
        "is killed in the middle of",
        "node-3 is started in its place",
        "is stopped in the middle of",
        "is woken",
        "is refused to complete",
        "Every tick was done once",
    ):
        assert part in text
    assert password not in text
    assert "README.md" in text.strip().splitlines()[-1]
    assert demo_schemas(database_url) == []
    assert execute(database_url, 'SELECT count(*) FROM public."job-scheduler"') == before


def test_without_the_fence_the_late_load_is_a_double_and_exit_1(
    start: Start, database_url: str, tmp_path: Path
) -> None:
    """Count what goes wrong: nodes that ignore the fence load a tick twice, and the verdict says so (C7.1, C11)."""
    (tmp_path / "sitecustomize.py").write_text(
        "import tenure.demo.effects\ntenure.demo.effects._hold_fence = lambda tables, effect: None\n"
    )
    demo = start("--nodes", "2", "--ticks", "5", "--json", "--database-url", database_url, PYTHONPATH=str(tmp_path))
    out, err = demo.communicate(timeout=LIMIT_S)
    assert (demo.returncode, err) == (1, "")
    verdict = json.loads(out)
    assert (verdict["ok"], verdict["doubles"], verdict["lost"]) == (False, 1, 0)
    assert (verdict["double_orders"], verdict["accepted_writes"]) == (2400, 1)
    assert any("was doubled: 2 loads, 4,800 order rows" in problem for problem in verdict["problems"])
    assert demo_schemas(database_url) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_process_behind(start: Start, number: signal.Signals, code: int) -> None:
    """End nodes, the frozen one included, and the server, when Ctrl-C hits the group (C11: no traceback)."""
    demo = start("--ticks", "6", "--seed", "5")
    read_until(demo, "is stopped in the middle of")
    below = descendants(demo.pid)
    assert any(state.startswith("T") for pid, (_, state) in processes().items() if pid in below)
    os.killpg(demo.pid, number)
    _, err = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == code
    assert "Traceback" not in err
    eventually(lambda: all(is_gone(pid) for pid in below))


@on_linux
def test_kill_of_the_director_leaves_no_process_behind(start: Start) -> None:
    """Let nodes die with the director, the frozen one included, and the server too."""
    demo = start("--ticks", "6", "--seed", "5")
    read_until(demo, "is stopped in the middle of")
    below = descendants(demo.pid)
    demo.kill()
    eventually(lambda: all(is_gone(pid) for pid in below), 20)


def test_ctrl_c_drops_the_schema(start: Start, database_url: str) -> None:
    """Leave the user's database as it was."""
    demo = start("--database-url", database_url)
    read_until(demo, "won tick 1")
    os.killpg(demo.pid, signal.SIGINT)
    demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 130
    assert demo_schemas(database_url) == []


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--nodes", "1"], 2, "another must take over. Give 2 or more."),
        (["--nodes", "99"], 2, "Give at most 12."),
        (["--ticks", "4"], 2, "--ticks"),
        (["--database-url", "postgresql://u:hush@127.0.0.1:1/x"], 69, "cannot be reached"),
    ],
)
def test_a_users_mistake_is_one_line(start: Start, options: list[str], code: int, said: str) -> None:
    """Name the field and the fix; no traceback, no password (C11)."""
    demo = start("--json", *options)
    out, err = demo.communicate(timeout=LIMIT_S)
    assert (demo.returncode, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    assert "hush" not in err
