"""`tenure worker`: a scheduler of an application, run until a signal ends it (C10.8)."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack
from datetime import timedelta
from typing import NoReturn

import click

from tenure.cli import leave_logging_to_the_application
from tenure.cli.errors import ExitCode, say
from tenure.cli.found import find_scheduler
from tenure.cli.health import PortError, serving_health
from tenure.cli.options import duration_option
from tenure.scheduling import AsyncScheduler, Scheduler

_OWN = "tenure."
"""How the codes of jobs begin that a scheduler brings itself."""


@click.command(
    epilog="""\b
MODULE is imported as Python does, from the working directory too; SCHEDULER
is a Scheduler or an AsyncScheduler in it, dotted if it is deeper:
  tenure worker shop.jobs:scheduler --drain 1m --health-port 8080

\b
TERM or INT: no run begins any more; those under way have the time of --drain
(unless given, the scheduler's own, which is 30s unless set), then they are
cancelled and released, and another node tries the same ticks again. A second
signal ends that time now; a third one waits for nothing.

\b
GET /healthz answers 200 while the scheduler is started and heard of the
database lately (30s, or three polls), else 503.

\b
Exit codes:
    0  stopped by a signal, and every run here ended or was released
    1  an INITIAL job failed, or was not done in time
    2  the command line is wrong, or there is no such scheduler
   69  the database refused, or the port of --health-port cannot be had
   77  the database role lacks a grant
   78  the schema is missing or old
  130  ended by a third signal; what ran is taken up when its lease ends""",
)
@click.argument("place", metavar="MODULE:SCHEDULER")
@duration_option("--drain", "How long runs may go on after a signal, instead of the scheduler's own setting.")
@click.option("--health-port", type=click.IntRange(0, 65_535), help="Serve GET /healthz there; 0 takes any free port.")
@click.option(
    "--health-host", metavar="HOST", help="The address to serve it on; 0.0.0.0 for all.  [default: 127.0.0.1]"
)
def worker(*, place: str, drain: timedelta | None, health_port: int | None, health_host: str | None) -> int:
    """Run the jobs of a scheduler until a signal ends it."""
    if health_host is not None and health_port is None:
        raise click.UsageError("--health-host is that of --health-port PORT. Give both.")
    scheduler = find_scheduler(place)
    leave_logging_to_the_application()
    with ExitStack() as stack:
        if health_port is not None:
            try:
                serving = serving_health(health_host or "127.0.0.1", health_port, scheduler.healthy)
                say(f"Health: {stack.enter_context(serving)}")
            except PortError as error:
                say(str(error))
                return ExitCode.UNAVAILABLE
        say(_opening(place, scheduler))
        return _run(scheduler, drain)


def _opening(place: str, scheduler: Scheduler | AsyncScheduler) -> str:
    codes = [job.code for job in scheduler.jobs if not job.code.startswith(_OWN)]
    if not codes:
        return f"{place} has no jobs of its own. It runs until a signal ends it."
    return f"Running {len(codes)} job{'s' if len(codes) > 1 else ''} of {place}: {', '.join(codes)}."


def _run(scheduler: Scheduler | AsyncScheduler, drain: timedelta | None) -> int:
    if isinstance(scheduler, AsyncScheduler):
        asyncio.run(_run_on_loop(scheduler, drain))
    else:
        _run_in_threads(scheduler, drain)
    say("Stopped.")
    return ExitCode.OK


async def _run_on_loop(scheduler: AsyncScheduler, drain: timedelta | None) -> None:
    try:
        await scheduler.run(drain=drain)
    except asyncio.CancelledError:
        _end_at_once()
    finally:
        await scheduler.service.close()


def _run_in_threads(scheduler: Scheduler, drain: timedelta | None) -> None:
    try:
        scheduler.run(drain=drain)
    except KeyboardInterrupt:
        _end_at_once()
    finally:
        scheduler.service.close()


def _end_at_once() -> NoReturn:
    say("Ended at once. What ran here is taken up by another node when its lease ends.")
    sys.stdout.flush()
    # asyncio.run and the interpreter would wait for callbacks that do not hear that they are cancelled
    os._exit(ExitCode.INTERRUPTED)
