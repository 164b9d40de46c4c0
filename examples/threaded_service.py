"""Serve from threads, and run jobs at their ticks beside it: start it as often as you like, on as many hosts (C10).

Run ``DATABASE_URL=postgresql://… python examples/threaded_service.py`` after `tenure schema apply`, in two terminals.
Each report is made in steps. A node that is killed in the middle leaves its checkpoint, and the other goes on from
there when the lease has run out. Ctrl-C or SIGTERM ends one in order: its callbacks end first.

``curl localhost:PORT/health`` answers 503 when the scheduler does not turn.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

from tenure import JobSchedulerService
from tenure.scheduling import Every, JobRun, Retry, Scheduler

DATABASE_URL = os.environ["DATABASE_URL"]
STEPS = 5

jobs = JobSchedulerService(DATABASE_URL)
scheduler = Scheduler(jobs, poll=timedelta(seconds=1), drain=timedelta(seconds=10))


@scheduler.initial("make-tables", lease=timedelta(seconds=5))
def make_tables(run: JobRun) -> None:
    """Make the tables, once for ever: in the transaction that completes the run."""
    with psycopg.connect(DATABASE_URL) as connection:
        connection.execute("CREATE TABLE pages (tick timestamptz, number int, attempt int)")
        connection.execute("CREATE TABLE reports (tick timestamptz, node int)")
        run.complete(connection)


@scheduler.job(
    "report",
    schedule=Every(timedelta(seconds=1)),  # or Cron("0 7 * * MON-FRI", timezone="Europe/Paris")
    lease=timedelta(seconds=2),  # so short that you see the takeover; 15 minutes unless given
    retry=Retry(max_attempts=5, first=timedelta(seconds=1)),
    catch_up="all",
    overlap="allow",
)
def report(run: JobRun) -> None:
    """Write a report page by page. Each page and the checkpoint that counts it are one transaction."""
    previous = run.previous
    done: int = previous.checkpoint["done"] if previous and previous.checkpoint else 0
    with psycopg.connect(DATABASE_URL) as connection:
        while done < STEPS:
            run.check()  # raises if another node has taken over, or the job's time is up
            time.sleep(0.1)  # the work
            done += 1
            with connection.transaction():
                connection.execute("INSERT INTO pages VALUES (%s, %s, %s)", [run.scheduled_at, done, run.attempt])
                run.checkpoint({"done": done, "of": STEPS}, connection=connection)
        with connection.transaction():
            connection.execute("INSERT INTO reports VALUES (%s, %s)", [run.scheduled_at, os.getpid()])
            run.complete(connection, {"pages": STEPS})


class Answer(BaseHTTPRequestHandler):
    """Answer health checks."""

    def do_GET(self) -> None:
        """Say whether the scheduler turns."""
        self.send_response(200 if scheduler.healthy() else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for each request."""


def main(port: int) -> None:
    """Serve until a signal ends it."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Answer)

    def stop(_number: int, _frame: object) -> None:
        threading.Thread(target=server.shutdown).start()  # it waits for this very thread to stop serving

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with jobs, scheduler, server:
        print(f"serving on port {server.server_address[1]}", flush=True)
        server.serve_forever(poll_interval=0.1)
    print("stopped in order", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 0)
