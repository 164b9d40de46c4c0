"""`tenure status`: everything at a glance, once or live."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Final

import click

from tenure import JobDatabaseError, JobSchedulerService
from tenure.cli.asking import ask
from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, say
from tenure.cli.glances import as_json, emit_overview
from tenure.cli.options import duration_option
from tenure.cli.output import emit, emit_json
from tenure.operating import Overview, operations

_SHORTEST_INTERVAL: Final = timedelta(milliseconds=200)
_CLEAR: Final = "\x1b[2J\x1b[H"


@click.command(
    epilog="""\b
Examples:
  tenure status                  one screen
  tenure status --watch          the same, live, until ^C
  tenure status --json | jq '.jobs[] | select(.health != "ok") | .code'
  tenure status > /dev/null || page-somebody
Exit codes: 0 nothing has to be done; 2 something is overdue (a tick, or a run
that waits, should have begun more than a minute ago), or exhausted (somebody
has to retry or skip it). Others, such as 69, say that nobody knows."""
)
@click.option("--watch", is_flag=True, help="Look again and again, until interrupted; with --json, one line each.")
@duration_option("--interval", "How often to look with --watch.", default="2s")
@click.option("--json", "in_json", is_flag=True, help="Print a JSON object.")
@connection_options
def status(*, connection: Connection, watch: bool, interval: timedelta, in_json: bool) -> int:
    """Show all jobs, who holds what, and which nodes are alive, in one screen."""
    if interval < _SHORTEST_INTERVAL:
        raise click.BadParameter("it must be 200ms or more.", param_hint="--interval")
    with connection.service() as service:
        if watch:
            return _watch(service, interval, in_json=in_json)
        return _show(_look(service), in_json=in_json)


def _look(service: JobSchedulerService) -> Overview:
    return ask(service, operations.overview)


def _show(seen: Overview, *, in_json: bool) -> int:
    if in_json:
        emit_json(as_json(seen))
    else:
        emit_overview(seen)
    return _exit_code(seen)


def _exit_code(seen: Overview) -> int:
    return ExitCode.ATTENTION if seen.needs_attention else ExitCode.OK


def _watch(service: JobSchedulerService, interval: timedelta, *, in_json: bool) -> int:
    """Show it until interrupted; a database that goes away meanwhile is said, and waited for."""
    code = _frame(_look(service), in_json=in_json)
    try:
        while True:
            time.sleep(interval.total_seconds())
            try:
                code = _frame(_look(service), in_json=in_json)
            except JobDatabaseError as error:
                say(str(error))
    except KeyboardInterrupt:
        return code


def _frame(seen: Overview, *, in_json: bool) -> int:
    if in_json:
        emit_json(as_json(seen), indent=None)
        return _exit_code(seen)
    if sys.stdout.isatty():
        emit(_CLEAR)
    return _show(seen, in_json=False)
