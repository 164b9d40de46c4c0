"""`tenure ls` and `tenure show`: runs as they stand."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import click

from tenure import JobSchedulerStatus
from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, say
from tenure.cli.options import is_text, read_text
from tenure.cli.output import attempt_as_json, emit_json, emit_run, emit_runs, run_as_json
from tenure.scheduling import Outcome

_MOST_RUNS = 10_000


@click.command()
@click.option("--code", metavar="CODE", callback=read_text, help="Only the runs of this job.")
@click.option(
    "--status",
    type=click.Choice([status.value for status in JobSchedulerStatus], case_sensitive=False),
    help="Only the runs that stand so.",
)
@click.option(
    "--outcome",
    type=click.Choice([outcome.value for outcome in Outcome], case_sensitive=False),
    help="Only the runs that ended so in detail, or wait so.",
)
@click.option("--limit", type=click.IntRange(1, _MOST_RUNS), default=50, show_default=True, help="How many at most.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@connection_options
def ls(
    *, connection: Connection, code: str | None, status: str | None, outcome: str | None, limit: int, as_json: bool
) -> int:
    """List runs, those whose lease began last first."""
    wanted = JobSchedulerStatus(status.upper()) if status else None
    with connection.service() as service:
        runs = service.list_runs(code=code, status=wanted, outcome=outcome, limit=limit)
    if as_json:
        emit_json([run_as_json(run) for run in runs])
    else:
        emit_runs(runs, datetime.now(UTC))
    return ExitCode.OK


@click.command()
@click.argument("run", metavar="ID|KEY")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@connection_options
def show(*, connection: Connection, run: str, as_json: bool) -> int:
    """Show one run and its former attempts, by its id (a UUID) or its idempotency key (v2:...)."""
    wanted = _read_id(run)
    with connection.service() as service:
        found = service.find_run(wanted) if isinstance(wanted, UUID) or is_text(wanted) else None
        attempts = service.list_attempts(found.id) if found else []
    if found is None:
        say(f"There is no run with the {'id' if isinstance(wanted, UUID) else 'key'} {run}. See: tenure ls")
        return ExitCode.NEGATIVE
    if as_json:
        emit_json({**run_as_json(found), "attempts": [attempt_as_json(each) for each in attempts]})
    else:
        emit_run(found, attempts, datetime.now(UTC))
    return ExitCode.OK


def _read_id(text: str) -> UUID | str:
    try:
        return UUID(text)
    except ValueError:
        return text
