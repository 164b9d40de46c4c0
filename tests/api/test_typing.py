"""Both type checkers accept what users write, narrow what they should, and refuse what is wrong (C1.3)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
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

SCHEDULES = """
from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_type

import psycopg

from tenure import AsyncJobSchedulerService, JobSchedulerService, LostReason, PreviousAttempt
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Cron, Every, Job, JobRun, Retention, Retry, Scheduler
from tenure.scheduling.events import Event, RunEnded

on_loop = AsyncScheduler(AsyncJobSchedulerService(), poll=timedelta(seconds=1), retention=None)
blocking = Scheduler(JobSchedulerService(), max_concurrent_runs=4, retention=Retention(keep=timedelta(days=30)))


@on_loop.job(
    "sync-orders", schedule=Cron("0 3 * * *", timezone="Europe/Paris"), lease=timedelta(minutes=15),
    retry=Retry(max_attempts=5), catch_up="latest", max_lateness=timedelta(hours=6), overlap="skip",
    timeout=timedelta(hours=1), jitter=timedelta(seconds=10),
)
async def sync_orders(run: AsyncJobRun) -> dict[str, int] | None:
    assert_type(run.scheduled_at, datetime | None)
    assert_type(run.attempt, int)
    assert_type(run.lost, LostReason | None)
    assert_type(run.previous, PreviousAttempt | None)
    run.check()
    assert_type(await run.checkpoint({"done": 1, "of": 10}), None)
    async with await psycopg.AsyncConnection.connect() as connection:
        await run.guard(connection)
        assert_type(await run.complete(connection, {"rows": 3}), bool)
    return {"rows": 3}


@on_loop.job("hourly", schedule=Every(timedelta(hours=1)))
async def hourly(run: JobRun) -> None:
    run.check()


@on_loop.initial("seed")
async def seed(run: AsyncJobRun) -> None:
    run.check()


@blocking.job("hourly", schedule=Every(timedelta(hours=1)), overlap="queue")
def plain(run: JobRun) -> dict[str, int]:
    assert_type(run.stopping, bool)
    with psycopg.connect() as connection:
        run.guard(connection)
        run.complete(connection, {"rows": 3})
    return {}


@blocking.initial("seed", lease=timedelta(minutes=1))
def plain_seed(run: JobRun) -> None:
    run.check()


def listen(event: Event) -> None:
    if isinstance(event, RunEnded):
        assert_type(event.error, BaseException | None)


blocking.listen(listen)
blocking.add(Job(code="by-hand", schedule=Cron("@daily"), callback=plain))
assert_type(blocking.healthy(), bool)
assert_type(blocking.jobs, tuple[Job, ...])


def main() -> None:
    # what was decorated is what it was
    assert_type(plain(JobRun.__new__(JobRun)), dict[str, int])
    with blocking as started:
        assert_type(started, Scheduler)


async def main_on_loop(run: AsyncJobRun) -> None:
    assert_type(await sync_orders(run), dict[str, int] | None)
    async with on_loop as started:
        assert_type(started, AsyncScheduler)
    await on_loop.run()
"""

MISUSED_SCHEDULES = {
    "unknown rule": '@blocking.job("a", schedule=Cron("@daily"), retries=3)\ndef a(run: JobRun) -> None: ...',
    "unknown overlap": '@blocking.job("a", schedule=Cron("@daily"), overlap="no")\ndef a(run: JobRun) -> None: ...',
    "seconds for a duration": '@blocking.job("a", schedule=Cron("@daily"), lease=60)\ndef a(run: JobRun) -> None: ...',
    "text for a schedule": '@blocking.job("a", schedule="@daily")\ndef a(run: JobRun) -> None: ...',
    "no schedule": '@blocking.job("a")\ndef a(run: JobRun) -> None: ...',
    "no run": '@blocking.job("a", schedule=Cron("@daily"))\ndef a() -> None: ...',
    "a plain function on the loop": '@on_loop.job("a", schedule=Cron("@daily"))\ndef a(run: AsyncJobRun) -> None: ...',
    "an async run in a thread": '@blocking.job("a", schedule=Cron("@daily"))\ndef a(run: AsyncJobRun) -> None: ...',
    "the other service": "Scheduler(AsyncJobSchedulerService())",
    "unknown setting": "Scheduler(JobSchedulerService(), polling=1)",
}

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


BEFORE_MISUSE = """
from tenure import AsyncJobExecutionLease, AsyncJobSchedulerService, JobAcquireOptions, JobSchedulerService
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Cron, JobRun, Scheduler
blocking = Scheduler(JobSchedulerService())
on_loop = AsyncScheduler(AsyncJobSchedulerService())
print(blocking, on_loop, AsyncJobExecutionLease, AsyncJobRun, JobAcquireOptions, JobRun, Cron)
"""
ACCEPTED = {"services": USE, "schedulers": SCHEDULES, "before the misuse": BEFORE_MISUSE}
REFUSED = {name: f"{BEFORE_MISUSE}{lines}\n" for name, lines in (MISUSE | MISUSED_SCHEDULES).items()}


def mypy(folder: Path) -> set[str]:
    """Give the names of the files that are refused."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(folder / "cache")]
    files = sorted(map(str, folder.glob("*.py")))
    said = subprocess.run([*command, *files], capture_output=True, text=True, check=False).stdout
    print(said)
    return {Path(line.partition(":")[0]).name for line in said.splitlines() if ": error:" in line}


def pyright(folder: Path) -> set[str]:
    """Give the names of the files that are refused."""
    files = sorted(map(str, folder.glob("*.py")))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    found = json.loads(done.stdout)["generalDiagnostics"]
    print(*[each["message"] for each in found], sep="\n")
    return {Path(each["file"]).name for each in found}


@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_what_is_right_is_accepted_and_what_is_wrong_is_refused(
    tmp_path: Path, checker: Callable[[Path], set[str]]
) -> None:
    """C1.3, C10.5: each use and each misuse is a module of its own; one run of the checker judges them all.

    Strict: narrowing on `acquired`, results typed by the callback, decorated functions as they were. Refused is what
    the contract forbids, a rule that a job does not have, and a callback of the other kind.
    """
    for kind, modules in ("accepted", ACCEPTED), ("refused", REFUSED):
        for number, text in enumerate(modules.values()):
            strict = "# pyright: strict\n" if kind == "accepted" else ""
            (tmp_path / f"{kind}_{number}.py").write_text(strict + text)
    expected = {f"refused_{number}.py": name for number, name in enumerate(REFUSED)}
    seen = checker(tmp_path)
    assert sorted(seen - expected.keys()) == []
    assert [name for file, name in expected.items() if file not in seen] == []
