"""A worker that writes business rows and settles its run, and says over a pipe at which statement it stands.

One process works on many runs, each in a thread of its own, so that one SIGKILL kills many of them, each at another
statement. A run that is told where to stop waits there for ever.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import psycopg

from tenure import JobAcquireOptions, JobExecutionLease, JobNotAcquired, JobSchedulerService, NotAcquiredReason

LINES = 3
BOUNDARIES = (
    "asked",
    "acquired",
    "begun",
    *(f"line {number}" for number in range(1, LINES + 1)),
    "completed",
    "committed",
    "returned",
)
"""Where a run can be killed: before the first statement, and after each."""


@dataclass(frozen=True)
class Task:
    """Name a run, and where to stop in it; `None` runs to its end."""

    run: str
    stop_at: str | None = None


def options(run: str) -> JobAcquireOptions:
    """Name the run of that key; it is not renewed, so that only its age decides."""
    return JobAcquireOptions(code="effects", run_key=run, lease_ms=60_000, heartbeat_ms=0)


class Worker:
    """Work on runs, with the completion in the transaction of the rows, or after it."""

    def __init__(self, url: str, pipe: Connection, *, together: bool) -> None:
        self.url, self.together = url, together
        self.service = JobSchedulerService(url)
        self._pipe = pipe
        self._sending = threading.Lock()

    def reach(self, task: Task, boundary: str) -> None:
        """Report a boundary, and stay there if the task says so."""
        stays = task.stop_at == boundary
        with self._sending:
            self._pipe.send((task.run, boundary, stays))
        if stays:
            threading.Event().wait()

    def work(self, task: Task) -> None:
        """Bring a run to its end, if it is not done: a row that a dying server process still holds is asked again."""
        self.reach(task, "asked")
        while True:
            outcome = self.service.run_exclusive(options(task.run), lambda lease: self.effects(task, lease))
            lost = outcome.not_acquired
            if not isinstance(lost, JobNotAcquired) or lost.reason is NotAcquiredReason.SUCCEEDED:
                break
            time.sleep(0.01)
        self.reach(task, "returned")

    def effects(self, task: Task, lease: JobExecutionLease) -> None:
        """Insert one set of rows under the lease's token."""
        self.reach(task, "acquired")
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("BEGIN")
            self.reach(task, "begun")
            for line in range(1, LINES + 1):
                connection.execute("INSERT INTO effects VALUES (%s, %s, %s)", [task.run, line, lease.fencing_token])
                self.reach(task, f"line {line}")
            if self.together:
                self.service.complete(lease, {"lines": LINES}, connection=connection)
                self.reach(task, "completed")
            connection.execute("COMMIT")
            self.reach(task, "committed")


def main(url: str, pipe: Connection, tasks: list[Task], together: bool) -> None:
    """Work on all tasks at once, and end when all have ended."""
    worker = Worker(url, pipe, together=together)
    threads = [threading.Thread(target=worker.work, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker.service.close()
    pipe.close()
