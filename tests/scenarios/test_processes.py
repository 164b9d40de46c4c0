"""Forks, second loops, closed services, and what belongs to the caller (C4.5, C4.7, C5.2)."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import ConnectionPool

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobExecutionLease,
    JobSchedulerService,
)
from tests.support.rows import execute, row_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

LEASE_MS = 900
LEASE_S = LEASE_MS / 1000


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": LEASE_MS, **given})


def in_fork(work: Callable[[], Any], limit_s: float = 20.0) -> Any:
    """Run work in a forked child; give what it returned, or the type and text of what it raised."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            try:
                told = {"returned": work()}
            except BaseException as error:
                told = {"raised": type(error).__name__, "text": str(error)}
            os.write(writing, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], limit_s)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        told = json.loads(os.read(reading, 65_536) or b'"the child hung, or died"')
    finally:
        os.close(reading)
        os.waitpid(pid, 0)
    return told


def run_for_two_leases(node: JobSchedulerService, run_key: str) -> bool:
    """Hold a run so long in this process, by the service's own renewal."""

    def callback(lease: JobExecutionLease) -> bool:
        time.sleep(2 * LEASE_S)
        return lease.lost is None

    return node.run_exclusive(options(run_key), callback).result is True


class TestFork:
    def test_a_used_service_works_in_the_child(self, service: JobSchedulerService, database_url: str) -> None:
        """Pool, keeper and leases start afresh; the parent's go on (psycopg#395, steady-queue#49)."""

        def callback(lease: JobExecutionLease) -> tuple[Any, bool]:
            first = row_of(database_url, lease.id)["modifiedAt"]
            eventually(lambda: row_of(database_url, lease.id)["modifiedAt"] > first)
            told = in_fork(lambda: run_for_two_leases(service, "child"))
            back = datetime.now(UTC)
            eventually(lambda: row_of(database_url, lease.id)["modifiedAt"] > back)
            return told, service.heartbeat(lease)

        assert service.run_exclusive(options("parent"), callback).result == ({"returned": True}, True)
        for key in ("parent", "child"):
            row = row_of(database_url, options(key).lock_key)
            assert (row["status"], row["attempt"]) == ("SUCCESS", 1)
        assert row_of(database_url, options("child").lock_key)["ownerToken"] is not None
        assert service.find_run(options("parent").lock_key) is not None

    async def test_a_used_async_service_works_in_the_child(
        self, async_service: AsyncJobSchedulerService, database_url: str
    ) -> None:
        """On a loop of the child's own."""

        async def two_leases(lease: JobExecutionLease) -> bool:
            await asyncio.sleep(2 * LEASE_S)
            return lease.lost is None

        def child() -> bool:
            # the parent's loop is marked as running in this thread, and is not ours
            asyncio._set_running_loop(None)
            outcome = asyncio.run(async_service.run_exclusive(options("child"), two_leases))
            return outcome.result is True

        async def callback(lease: JobExecutionLease) -> Any:
            assert await async_service.heartbeat(lease)
            told = in_fork(child)
            return told, await async_service.heartbeat(lease)

        outcome = await async_service.run_exclusive(options("parent"), callback)
        assert outcome.result == ({"returned": True}, True)
        assert row_of(database_url, options("child").lock_key)["status"] == "SUCCESS"

    def test_a_fork_while_other_threads_use_the_service(self, service: JobSchedulerService) -> None:
        """Whatever locks are held at that moment, no child hangs."""
        stop = threading.Event()

        def busy(n: int) -> None:
            k = 0
            while not stop.is_set():
                k += 1
                service.run_exclusive(options(f"{n}-{k}"), lambda: None)

        threads = [threading.Thread(target=busy, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        try:
            for n in range(10):
                told = in_fork(lambda n=n: service.run_exclusive(options(f"child-{n}"), lambda: 7).result)  # type: ignore[misc]
                assert told == {"returned": 7}
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_multiprocessing(self, service: JobSchedulerService, database_url: str, method: str) -> None:
        """A child of `multiprocessing` is a different owner (C4.7), and works."""
        processes: Any = multiprocessing.get_context(method)

        def callback(lease: JobExecutionLease) -> object:
            assert service.heartbeat(lease)
            given = (service if method == "fork" else None, database_url)
            process = processes.Process(target=work_elsewhere, args=given)
            process.start()
            process.join(30)
            assert service.heartbeat(lease)
            return process.exitcode

        assert service.run_exclusive(options("parent", lease_ms=60_000), callback).result == 0
        assert row_of(database_url, options("child").lock_key)["status"] == "SUCCESS"

    def test_a_pool_that_was_given_is_refused_in_the_child(self, database_url: str) -> None:
        """One clear error from each method, before any SQL; the parent goes on."""
        with ConnectionPool(database_url, min_size=1, max_size=2) as pool, JobSchedulerService(pool) as node:
            won = node.acquire(options(lease_ms=60_000))
            assert won.acquired
            uses: list[Callable[[], object]] = [
                lambda: node.acquire(options("other")),
                lambda: node.run_exclusive(options("other"), lambda: None),
                lambda: node.heartbeat(won),
                lambda: node.complete(won),
                lambda: node.fail(won),
                lambda: node.release(won),
                node.list_runs,
                node.check_schema,
                node.migrate,
            ]
            for use in uses:
                told = in_fork(use)
                assert told["raised"] == "JobServiceStateError", told
                assert "pool" in told["text"]
                assert "fork" in told["text"]
            assert node.complete(won)
        assert execute(database_url, 'SELECT count(*) FROM "job-scheduler"') == [(1,)]

    @pytest.mark.parametrize("ending", ["returns", "raises"])
    def test_a_callback_that_ends_in_a_forked_child(
        self, service: JobSchedulerService, database_url: str, ending: str
    ) -> None:
        """The child settles nothing; the run is the parent's, and is settled there."""
        readable, writable = os.pipe()
        parent = os.getpid()

        def callback(lease: JobExecutionLease) -> str:
            if (pid := os.fork()) == 0:
                if ending == "raises":
                    raise ValueError("in the child")
                return "child"
            os.waitpid(pid, 0)
            assert row_of(database_url, lease.id)["status"] == "RUNNING"
            return "parent"

        told = ""
        try:
            result = service.run_exclusive(options(lease_ms=60_000), callback).result
        except BaseException as error:
            told = type(error).__name__
        finally:
            if os.getpid() != parent:
                os.write(writable, told.encode())
                os._exit(0)
        os.close(writable)
        with os.fdopen(readable) as end:
            assert end.read() == {"returns": "JobServiceStateError", "raises": "ValueError"}[ending]
        assert told == ""
        assert result == "parent"
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"

    def test_a_child_never_renews_its_parents_leases(
        self, database_url: str, rival: JobSchedulerService, tmp_path: Path
    ) -> None:
        """The parent is killed, its child lives on and renews a run of its own: the parent's run expires."""
        with parent_and_child(tmp_path, database_url) as (parent, child_pid):
            assert not rival.acquire(options("parent")).acquired
            killed_s = time.monotonic()
            parent.kill()
            parent.wait()
            eventually(lambda: rival.acquire(options("parent", lease_ms=60_000)).acquired, 5)
            assert time.monotonic() - killed_s <= LEASE_S + 1
            taken = row_of(database_url, options("parent").lock_key)
            os.kill(child_pid, 0)
            assert not rival.acquire(options("child")).acquired
            time.sleep(1.5 * LEASE_S)
            assert not rival.acquire(options("child")).acquired
            assert row_of(database_url, options("parent").lock_key) == taken
            assert (taken["owner"], taken["attempt"]) == ("node-b", 2)


def work_elsewhere(service: JobSchedulerService | None, url: str) -> None:
    """Use the inherited service, or a new one where nothing is inherited."""
    node = service or JobSchedulerService(url)
    assert node.run_exclusive(options("child"), lambda: "done").result == "done"
    if service is None:
        node.close()


PARENT = """
import json, os, sys, time
from tenure import JobAcquireOptions, JobSchedulerService
service = JobSchedulerService(sys.argv[1])

def hold(lease):
    if (pid := os.fork()) == 0:
        try:
            service.run_exclusive(JobAcquireOptions(code="job", run_key="child", lease_ms=900), wait)
        finally:
            os._exit(0)
    time.sleep(60)

def wait(lease):
    time.sleep(0.5)
    print(os.getpid(), flush=True)
    time.sleep(60)

service.run_exclusive(JobAcquireOptions(code="job", run_key="parent", lease_ms=900), hold)
"""


@contextmanager
def parent_and_child(folder: Path, url: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    script = folder / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(script), url], stdout=subprocess.PIPE, text=True)
    child_pid = 0
    try:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        yield parent, child_pid
    finally:
        parent.kill()
        if child_pid:
            os.kill(child_pid, signal.SIGKILL)
        parent.communicate()
