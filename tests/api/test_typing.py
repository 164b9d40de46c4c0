"""Both type checkers accept what users write, narrow what they should, and refuse what is wrong (C1.3)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

USE = """
from __future__ import annotations

from typing import assert_type

from tenure import (
    AsyncJobExecutionLease, AsyncJobSchedulerService, JobAcquired, JobAcquireOptions, JobAcquireResult, JobAttempt,
    JobExecutionLease, JobLease, JobNotAcquired, JobSchedulerService, JobSchedulerType, LostReason, PreviousAttempt,
    RunExclusiveResult,
)

options = JobAcquireOptions(code="sync-orders", run_key="2026-07-20T03:00:00.000Z", lease_ms=60_000)
seed = JobAcquireOptions(code="seed", type=JobSchedulerType.INITIAL)


def with_lease(lease: JobExecutionLease) -> int:
    lease.check()
    assert_type(lease.lost, LostReason | None)
    return lease.attempt


def in_batches(lease: JobExecutionLease) -> int:
    assert_type(lease.previous, PreviousAttempt | None)
    done: int = lease.previous.checkpoint["done"] if lease.previous and lease.previous.checkpoint else 0
    lease.checkpoint({"done": done + 1, "of": 10})
    return done


async def in_batches_awaited(lease: AsyncJobExecutionLease) -> int:
    assert_type(await lease.checkpoint({"done": 1, "of": 10}), None)
    return 1


async def in_batches_unannotated(lease: JobExecutionLease) -> int:
    await lease.checkpoint({"done": 1, "of": 10})
    return 1


def without() -> str:
    return "done"


def blocking(service: JobSchedulerService) -> None:
    won: JobAcquireResult = service.acquire(options)
    if won.acquired is True:
        assert_type(won, JobAcquired)
        assert_type(won.previous, PreviousAttempt | None)
        service.checkpoint(won, {"rows": 2})
        assert_type(service.list_attempts(won.id), list[JobAttempt])
        assert_type(service.complete(won, {"rows": 3}), bool)
    else:
        assert_type(won, JobNotAcquired)
        print(won.reason, won.expires_at)
    assert_type(service.run_exclusive(options, with_lease), RunExclusiveResult[int])
    assert_type(service.run_exclusive(options, in_batches), RunExclusiveResult[int])
    assert_type(service.run_exclusive(seed, without, on_lost="continue"), RunExclusiveResult[str])
    service.release(JobLease("7f0a6a3e-8f3c-4d3b-9a53-3f6f0e1c2a11", "7f0a6a3e-8f3c-4d3b-9a53-3f6f0e1c2a12"))


async def awaited(lease: JobExecutionLease) -> float:
    return 1.5


async def on_loop(service: AsyncJobSchedulerService) -> None:
    done = await service.run_exclusive(options, awaited)
    assert_type(done, RunExclusiveResult[float])
    assert_type(done.result, float | None)
    assert_type(await service.run_exclusive(options, in_batches_awaited), RunExclusiveResult[int])
    assert_type(await service.run_exclusive(options, in_batches_unannotated), RunExclusiveResult[int])
"""

MISUSE = {
    "run_key=None": 'JobAcquireOptions(code="a", run_key=None)',
    "positional": 'JobAcquireOptions("a")',
    "token of a loss": 'print(JobSchedulerService().acquire(JobAcquireOptions(code="a", run_key="b")).owner_token)',
    "unawaited": (
        'async def forgetful(lease: AsyncJobExecutionLease) -> None:\n    done: None = lease.checkpoint({"done": 1})\n'
    ),
    "async lease for the blocking service": (
        "def plain(lease: AsyncJobExecutionLease) -> None: print(lease)\n"
        'JobSchedulerService().run_exclusive(JobAcquireOptions(code="a", run_key="b"), plain)'
    ),
    "unknown on_lost": """JobSchedulerService().run_exclusive(
        JobAcquireOptions(code="a", run_key="b"), print, on_lost="ignore"
    )""",
}


def mypy(path: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        str(path.parent),
        str(path),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def pyright(path: Path) -> list[str]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent)
    return [found["message"] for found in json.loads(done.stdout)["generalDiagnostics"]]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return tmp_path / "use_of_tenure.py"


def test_mypy_accepts_correct_use(module: Path) -> None:
    """C1.3: strict mypy, narrowing on `acquired`, results typed by the callback."""
    module.write_text(USE)
    assert mypy(module) == ""


def test_pyright_accepts_correct_use(module: Path) -> None:
    """C1.3: strict pyright likewise."""
    module.write_text("# pyright: strict\n" + USE)
    assert pyright(module) == []


@pytest.mark.parametrize("line", MISUSE.values(), ids=MISUSE.keys())
def test_both_checkers_refuse_misuse(module: Path, line: str) -> None:
    """C1.3: what the contract forbids does not type-check."""
    module.write_text(f"from tenure import AsyncJobExecutionLease, JobAcquireOptions, JobSchedulerService\n{line}\n")
    assert "error" in mypy(module)
    assert pyright(module)
