"""A holder stopped with SIGSTOP past its lease, then woken, is told and refused (C4.3, C5.5, C5.6, C6.1, C6.5)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tenure import JobAcquired, JobAcquireOptions, JobSchedulerService
from tests.support.rows import row_of
from tests.support.waiting import eventually

OPTIONS = JobAcquireOptions(code="job", run_key="r", lease_ms=60_000)

HOLDER = """
import asyncio, json, sys, time
from tenure import *

url, kind = sys.argv[1:]
options = JobAcquireOptions(code="job", run_key="r", lease_ms=900)
told = {}

def say(**facts):
    print(json.dumps(facts), flush=True)

def started(lease):
    say(id=str(lease.id), token=str(lease.owner_token), fencing=lease.fencing_token, attempt=lease.attempt,
        key=lease.idempotency_key)

def blocking(lease):
    started(lease)
    while not lease.lost:
        time.sleep(0.005)
    copy = JobLease(str(lease.id), str(lease.owner_token))
    told.update(lost=lease.lost.value, heartbeat=service.heartbeat(copy), complete=service.complete(copy),
        fail=service.fail(copy), release=service.release(copy))
    if kind == "check":
        lease.check()

async def awaited(lease):
    started(lease)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        copy = JobLease(str(lease.id), str(lease.owner_token))
        told.update(lost=lease.lost.value, heartbeat=await service.heartbeat(copy),
            complete=await service.complete(copy), fail=await service.fail(copy), release=await service.release(copy))
        raise

async def main():
    global service
    async with AsyncJobSchedulerService(url) as service:
        await service.run_exclusive(options, awaited)

try:
    if kind == "async":
        asyncio.run(main())
    else:
        with JobSchedulerService(url) as service:
            service.run_exclusive(options, blocking)
except LostJobLeaseError as error:
    say(**told, reason=error.reason.value)
"""


@contextmanager
def child(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    script = folder / "holder.py"
    script.write_text(HOLDER)
    process = subprocess.Popen([sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the holder ended without a word"
    facts = json.loads(line)
    assert isinstance(facts, dict)
    return facts


@pytest.mark.parametrize("kind", ["check", "return", "async"])
def test_a_holder_that_was_stopped_past_its_lease(
    database_url: str, rival: JobSchedulerService, tmp_path: Path, kind: str
) -> None:
    """C4.3, C5.5, C5.6, C6.1, C6.5 (db-scheduler#402, redbeat#127): the rival goes on, whatever the woken one tries."""
    with child(tmp_path, database_url, kind) as holder:
        first = heard(holder)
        assert not rival.acquire(OPTIONS).acquired
        os.kill(holder.pid, signal.SIGSTOP)
        won = eventually(lambda: _won(rival))
        assert won is not None
        assert str(won.id) == first["id"]
        assert (first["attempt"], won.attempt) == (1, 2)
        assert won.owner_token != UUID(first["token"])
        assert won.fencing_token > first["fencing"]
        assert won.idempotency_key == first["key"]
        before = row_of(database_url, won.id)
        os.kill(holder.pid, signal.SIGCONT)
        told = heard(holder)
        assert holder.wait(10) == 0
    reason, lost = told.pop("reason"), told.pop("lost")
    assert told == {"heartbeat": False, "complete": False, "fail": False, "release": False}
    # woken, it knows by its own clock that it is late, or by an answer that it was replaced, whichever comes first
    assert lost in ("unreachable", "taken over")
    assert reason in ({"taken over"} if kind != "check" else {lost, "taken over"})
    assert row_of(database_url, won.id) == before
    assert rival.complete(won, {"by": "the rival"}) is True


def _won(rival: JobSchedulerService) -> JobAcquired | None:
    answer = rival.acquire(OPTIONS)
    return answer if answer.acquired else None
