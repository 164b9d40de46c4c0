"""Exactly once inside the database: workers killed at every statement leave one set of rows for each run (C7.2)."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext

import pytest

from tests.support.rows import TABLE, execute
from tests.support.worker_effects import BOUNDARIES, LINES, Task, main

RUNS = int(os.environ.get("TENURE_KILLED_RUNS", 6 * len(BOUNDARIES) ** 2))
"""As many as all pairs of places need; `make chaos` takes 1,026."""
APART = tuple(boundary for boundary in BOUNDARIES if boundary != "completed")
"""The boundaries of a worker that completes after its commit."""
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that are forked, with everything imported, from one without threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.worker_effects"])
    return context


class Crew:
    """Let workers live and die, and count where they were killed."""

    def __init__(self, url: str, context: ForkServerContext, *, together: bool) -> None:
        self.url, self._context, self._together = url, context, together
        self.killed: Counter[str] = Counter()

    def life(self, tasks: Sequence[Task]) -> None:
        """Let one process work until each run has ended or stands where it is to be killed; then kill it."""
        theirs, ours = self._context.Pipe()
        process = self._context.Process(target=main, args=(self.url, theirs, list(tasks), self._together))
        process.start()
        theirs.close()
        stands = self._watch(ours, len(tasks))
        if stands:
            process.kill()
        process.join(PATIENCE_S)
        assert process.exitcode == (-9 if stands else 0)
        process.close()
        ours.close()
        self.killed.update(stands.values())
        self._age()

    def _watch(self, reports: Connection, runs: int) -> dict[str, str]:
        """Follow the reports until every run stands still or has ended; say who stands where."""
        stands: dict[str, str] = {}
        ended: set[str] = set()
        while len(stands) + len(ended) < runs:
            assert reports.poll(PATIENCE_S), f"the worker fell silent; {len(stands)} stand, {len(ended)} ended"
            run, boundary, stays = reports.recv()
            if stays:
                stands[run] = boundary
            elif boundary == "returned":
                ended.add(run)
        return stands

    def _age(self) -> None:
        """Make every lease expire; this waits for the rows that dying server processes still hold."""
        execute(
            self.url,
            f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" - interval \'2 minutes\' WHERE "status" = \'RUNNING\'',
        )

    def sets(self) -> dict[str, int]:
        """Give how many lines each run has left."""
        return dict(execute(self.url, "SELECT run, count(*) FROM effects GROUP BY run"))


@pytest.fixture
def effects_url(database_url: str) -> str:
    """A database with a business table that accepts everything, repeats too."""
    execute(database_url, "CREATE TABLE effects (run text, line int, token bigint)")
    return database_url


def batches(runs: Sequence[str], size: int) -> list[Sequence[str]]:
    return [runs[start : start + size] for start in range(0, len(runs), size)]


def test_killed_at_every_statement_each_run_has_one_set_of_rows(effects_url: str, processes: ForkServerContext) -> None:
    """C7.2: each run is worked on by two that are killed, in all pairs of places, and by one that is not."""
    crew = Crew(effects_url, processes, together=True)
    runs = [f"run {number}" for number in range(RUNS)]
    for number, batch in enumerate(batches(runs, 6 * len(BOUNDARIES))):
        for shift in (0, number):
            places = [BOUNDARIES[(place + shift) % len(BOUNDARIES)] for place in range(len(batch))]
            crew.life([Task(run, place) for run, place in zip(batch, places, strict=True)])
        crew.life([Task(run) for run in batch])
    assert set(crew.killed) == set(BOUNDARIES)
    assert crew.sets() == dict.fromkeys(runs, LINES)
    successes = execute(effects_url, f'SELECT "runKey", "fencingToken" FROM {TABLE} WHERE "status" = \'SUCCESS\'')
    written = execute(effects_url, "SELECT run, token FROM effects GROUP BY run, token HAVING count(DISTINCT line) = 3")
    assert sorted(written) == sorted(successes)
    takeovers = execute(effects_url, f'SELECT sum("attempt" - 1), count(*) FILTER (WHERE "attempt" > 1) FROM {TABLE}')
    assert takeovers[0][0] > 0.97 * RUNS


def test_completed_after_the_commit_a_kill_between_them_doubles(effects_url: str, processes: ForkServerContext) -> None:
    """C7.1: the same worker without `connection=`, so that the test above is known to be able to fail."""
    crew = Crew(effects_url, processes, together=False)
    tasks = [Task(f"run {number}", boundary) for number, boundary in enumerate(2 * APART)]
    crew.life(tasks)
    crew.life([Task(task.run) for task in tasks])
    assert crew.sets() == {task.run: LINES * (2 if task.stop_at == "committed" else 1) for task in tasks}
