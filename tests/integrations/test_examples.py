"""The examples, and the page on effects: what they show runs against a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_documents import functions_of, named_tests, python_blocks
from tests.support.redis import PROGRAM as REDIS
from tests.support.redis import redis_server
from tests.support.rows import TABLE, execute

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


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A Redis for one test."""
    if REDIS is None:
        pytest.skip("Redis is not installed (Debian: redis-server)")
    with redis_server(tmp_path) as url:
        yield url


def test_jobs_reach_celery_once_though_relays_are_killed(database_url: str, redis_url: str) -> None:
    """C7.4, C2.7: examples/outbox_celery.py: a task id is no lock, so the task drops the repetition."""
    pytest.importorskip("celery")
    assert run_example("outbox_celery.py", database_url, redis_url).splitlines() == [
        "20 orders and the messages about them were committed together.",
        "A relay was killed after its message 7.",
        "A relay was killed before its message 5.",
        "1 repeated delivery was dropped by its task id.",
        "20 mails were sent, one for each order.",
    ]
    assert execute(database_url, "SELECT number FROM mails ORDER BY number") == [(n,) for n in range(20)]


def test_jobs_reach_bullmq_once_though_relays_are_killed(database_url: str, redis_url: str) -> None:
    """C7.4, C2.7: examples/outbox_bullmq.py: BullMQ drops a job whose id it knows."""
    pytest.importorskip("bullmq")
    assert run_example("outbox_bullmq.py", database_url, redis_url).splitlines() == [
        "20 orders and the messages about them were committed together.",
        "A relay was killed after its message 7.",
        "A relay was killed before its message 5.",
        "2 messages were handed over twice.",
        "20 mails were sent, one for each order.",
    ]


def test_the_pages_blocks_run_in_their_order(database_url: str) -> None:
    """C7.1, C7.2: docs/explanation/effects.md: every block runs, and what it says has happened has."""
    blocks = python_blocks(PAGE)
    spaces: list[dict[str, Any]] = [{"database_url": database_url} for _ in blocks]
    for code, space in zip(blocks, spaces, strict=True):
        exec(compile(code, str(PAGE), "exec"), space)
    assert spaces[0]["outcome"].result == 2
    assert len(spaces[-1]["sent"]) == 1
    assert execute(database_url, "SELECT month, count(*) FROM invoices GROUP BY month ORDER BY month") == [
        ("2026-07", 2),
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
