"""Be one node: ask for every tick that is due and not known to be done, work under the lease, until all are done."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Iterator

import psycopg

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobDatabaseError,
    JobExecutionLease,
    JobSchedulerService,
    LostJobLeaseError,
    NotAcquiredReason,
    OutcomeNotRecordedError,
    RunExclusiveResult,
)
from tenure.demo.node import die_with_parent
from tests.chaos.plan import CODE, HEARTBEAT_MS, LEASE_MS, LONG_WORK_S, WORK_S, Plan, run_key
from tests.chaos.tables import Effect, write

URL_VARIABLE = "TENURE_DATABASE_URL"
THREADS, TASKS = 2, 4
LOOK_EVERY_S = 0.1


class JobError(Exception):
    """Fail on purpose, or because the fence refused the write: the run is to be tried again."""


# What a node must live with, and ask again.
WEATHER = (JobError, LostJobLeaseError, JobDatabaseError, OutcomeNotRecordedError, psycopg.Error)


class Work:
    """Hold what the workers of a node share: which ticks are open, and how the job is done."""

    def __init__(self, name: str, plan: Plan, url: str, began_at: float) -> None:
        self._name = name
        self._plan = plan
        self._url = url
        self._began_at = began_at
        self._done: set[int] = set()
        self._taken: set[int] = set()
        self._random = random.Random(f"{plan.seed} {name}")

    @property
    def over(self) -> bool:
        """Say whether all ticks are known to be done."""
        return len(self._done) == self._plan.ticks

    def open_ticks(self) -> Iterator[int]:
        """Give the due ticks that are not known to be done and that no other worker of this node asks for now."""
        for tick in range(self._plan.ticks):
            due = self._began_at + self._plan.due_s(tick) <= time.time()
            if due and tick not in self._done and tick not in self._taken:
                self._taken.add(tick)
                yield tick
                self._taken.discard(tick)

    def note(self, tick: int, answer: RunExclusiveResult[None]) -> None:
        """Remember a tick that is done, here or elsewhere."""
        lost = answer.not_acquired
        if answer.acquired or (lost is not None and lost.reason is NotAcquiredReason.SUCCEEDED):
            self._done.add(tick)

    def duration_s(self) -> float:
        """Draw how long a job takes."""
        return LONG_WORK_S if self._random.random() < 0.1 else self._random.uniform(*WORK_S)

    def finish(self, tick: int, lease: JobExecutionLease) -> None:
        """Write the effect. Half of the jobs look at the lease first, the other half trust in the fence alone."""
        if self._random.random() < 0.05:
            raise JobError("failed on purpose")
        if self._random.random() < 0.5:
            lease.check()
        if not write(self._url, Effect(run_key(tick), lease.attempt, lease.fencing_token, self._name)):
            raise JobError("refused by the fence")


def options_for(tick: int) -> JobAcquireOptions:
    """Name the run of a tick, as every node does."""
    return JobAcquireOptions(code=CODE, run_key=run_key(tick), lease_ms=LEASE_MS, heartbeat_ms=HEARTBEAT_MS)


def run_blocking(work: Work, url: str, label: str) -> None:
    """Let threads share one blocking service."""
    with JobSchedulerService(url, owner_label=label) as service:
        workers = [threading.Thread(target=_work_blocking, args=(work, service), daemon=True) for _ in range(THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def _work_blocking(work: Work, service: JobSchedulerService) -> None:
    while not work.over:
        for tick in work.open_ticks():

            def job(lease: JobExecutionLease, tick: int = tick) -> None:
                time.sleep(work.duration_s())
                work.finish(tick, lease)

            try:
                work.note(tick, service.run_exclusive(options_for(tick), job))
            except WEATHER:
                continue
        time.sleep(LOOK_EVERY_S)


async def run_on_loop(work: Work, url: str, label: str) -> None:
    """Let tasks share one async service."""
    async with AsyncJobSchedulerService(url, owner_label=label) as service, asyncio.TaskGroup() as workers:
        for _ in range(TASKS):
            workers.create_task(_work_on_loop(work, service))


async def _work_on_loop(work: Work, service: AsyncJobSchedulerService) -> None:
    while not work.over:
        for tick in work.open_ticks():

            async def job(lease: JobExecutionLease, tick: int = tick) -> None:
                await asyncio.sleep(work.duration_s())
                # A thread: the cancellation of a lost lease must not make the server log a cancelled statement.
                await asyncio.to_thread(work.finish, tick, lease)

            try:
                work.note(tick, await service.run_exclusive(options_for(tick), job))
            except WEATHER:
                continue
        await asyncio.sleep(LOOK_EVERY_S)


def main() -> None:
    """Run a node until all ticks are done. The URL comes by the environment, which others cannot read."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.node")
    parser.add_argument("name")
    parser.add_argument("plan", type=Plan.from_text)
    parser.add_argument("began_at", type=float)
    parser.add_argument("--on-loop", action="store_true")
    given = parser.parse_args()
    die_with_parent()
    logging.basicConfig(level=logging.CRITICAL)
    url = os.environ[URL_VARIABLE]
    work = Work(given.name, given.plan, url, given.began_at)
    if given.on_loop:
        asyncio.run(run_on_loop(work, url, given.name))
    else:
        run_blocking(work, url, given.name)


if __name__ == "__main__":
    main()
