"""The examples, and the page on effects: what they show runs against a real server."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tenure import JobAcquireOptions, JobSchedulerService
from tests.docs.test_documents import functions_of, named_tests, python_blocks
from tests.support.rows import TABLE, execute
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "effects.md"


def run_example(name: str, *words: str) -> str:
    """Run an example as a reader does, and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_former_owner_is_refused_by_a_store_outside(database_url: str) -> None:
    """C4.3, C7.1: examples/fencing.py: the frozen node's write is refused, the successor's report stays."""
    assert run_example("fencing.py", database_url).splitlines() == [
        "node-a holds the run, and freezes.",
        "node-b took the run over, with a larger token, and wrote its report.",
        "node-a woke up, wrote, and was refused.",
        "The report is by node-b.",
    ]


def started(name: str, *words: str) -> subprocess.Popen[str]:
    """Start an example."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def first_row(line: str, attempt: int) -> int:
    """Read after which row an attempt went on."""
    found = re.fullmatch(r"attempt (\d+) goes on after row (\d+)\n", line)
    assert found, line
    assert int(found[1]) == attempt
    return int(found[2])


def listed(database_url: str) -> str:
    """Give what `tenure ls` shows."""
    environment = {**os.environ, "DATABASE_URL": database_url, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-m", "tenure", "ls"], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_an_import_killed_five_times_has_each_row_once(database_url: str, service: JobSchedulerService) -> None:
    """C7.6: examples/import_in_batches.py, killed at random; no attempt begins anew, `tenure ls` shows the progress."""
    key = JobAcquireOptions(code="import-prices", run_key="2026-07-20").lock_key
    chance = random.Random()

    def done() -> int:
        run = service.find_run(key)
        return run.progress[0] if run and run.progress else 0

    reached = 0
    for attempt in range(1, 6):
        with started("import_in_batches.py", database_url) as node:
            assert node.stdout is not None
            began = first_row(node.stdout.readline(), attempt)
            assert began >= reached
            goal = began + chance.randrange(500, 16_000)
            eventually(lambda goal=goal: done() >= goal, 30, every_s=0.002)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.01))
            node.kill()
        reached = done()
        assert goal <= reached < 100_000
        if attempt == 3:
            shown = re.search(r"RUNNING +import-prices .* ([\d,]+)/100,000 (\d+) % ", listed(database_url))
            assert shown
            assert int(shown[1].replace(",", "")) >= reached  # what was sent before the kill may be committed after it
            assert int(shown[2]) == int(shown[1].replace(",", "")) // 1000
    words = run_example("import_in_batches.py", database_url).splitlines(keepends=True)
    assert first_row(words[0], 6) >= reached
    assert words[1:] == ["imported 100000 rows\n"]
    counted = execute(database_url, "SELECT count(*), count(DISTINCT number), min(number), max(number) FROM prices")
    assert counted == [(100_000, 100_000, 1, 100_000)]
    assert re.search(r"SUCCESS +import-prices .* 100,000/100,000 100 % ", listed(database_url))
    assert [each.died for each in service.list_attempts(key)] == [True] * 5
    assert run_example("import_in_batches.py", database_url) == "imported already\n"


def test_the_pages_blocks_run_in_their_order(database_url: str) -> None:
    """C7.1, C7.2: docs/explanation/effects.md: every block runs, and what it says has happened has."""
    blocks = python_blocks(PAGE)
    spaces: list[dict[str, Any]] = [{"database_url": database_url} for _ in blocks]
    for code, space in zip(blocks, spaces, strict=True):
        exec(compile(code, str(PAGE), "exec"), space)
    assert spaces[0]["outcome"].result == 2
    assert len(spaces[-1]["sent"]) == 1
    assert [space["ordered"] for space in spaces if "ordered" in space] == [["paper"]]
    assert execute(database_url, "SELECT month, count(*) FROM invoices GROUP BY month ORDER BY month") == [
        ("2026-07", 2),
        ("numbered", 3),
        ("reminder", 2),
    ]
    assert execute(database_url, f'SELECT CAST("status" AS text), count(*) FROM {TABLE} GROUP BY 1') == [
        ("SUCCESS", len(blocks))
    ]


def test_each_promise_of_the_page_names_a_test_that_is_there() -> None:
    """docs/explanation/effects.md promises nothing that no test stands behind."""
    named = named_tests(PAGE)
    assert len(named) > 10
    for path, function in named:
        assert function in functions_of(ROOT / path), f"{path}::{function}"
    rows = re.findall(r"^\| .*\| C\d.*$", PAGE.read_text(), re.MULTILINE)
    assert all("`tests/" in row for row in rows)
