"""`tenure ls` and `tenure show`: runs as they stand."""

from __future__ import annotations

from uuid import UUID

import click

from tenure import JobSchedulerService, JobSchedulerStatus, RunRecord
from tenure.cli.asking import ask
from tenure.cli.codes import codes_that_begin
from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, say
from tenure.cli.lives import emit_life, life_as_json
from tenure.cli.moments import clock_of, instant_of
from tenure.cli.options import Moment, is_text, moment_option, read_text
from tenure.cli.output import emit_json, emit_runs, run_as_json
from tenure.operating import HistoryFilter, RunLife, RunState, operations
from tenure.scheduling import Outcome

_MOST_RUNS = 10_000


@click.command(
    epilog="""\b
Examples:
  tenure ls --code report --since 1d
  tenure ls --outcome exhausted --since 2026-07-20T00:00:00Z
  tenure ls --node web-3 --status running
  tenure ls --limit 200 --before 81723        the page after token 81723
A run's time is when its last lease began, or when a tick that never ran was
decided. --before is a fencing token; each page says that of the next one."""
)
@click.option(
    "--code", metavar="CODE", callback=read_text, shell_complete=codes_that_begin, help="Only the runs of this job."
)
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
@moment_option("--since", "Only those of then or later: an instant, or a duration ago, such as 2h.")
@moment_option("--until", "Only those of then or earlier.")
@click.option("--node", metavar="NODE", callback=read_text, help="Only those whose last holder has this label.")
@click.option("--before", metavar="TOKEN", type=click.IntRange(1), help="Go on after the page that said this token.")
@click.option("--limit", type=click.IntRange(1, _MOST_RUNS), default=50, show_default=True, help="How many at most.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@connection_options
def ls(
    *,
    connection: Connection,
    code: str | None,
    status: str | None,
    outcome: str | None,
    since: Moment | None,
    until: Moment | None,
    node: str | None,
    before: int | None,
    limit: int,
    as_json: bool,
) -> int:
    """List runs, those whose lease began last first."""
    with connection.service() as service:
        clock = clock_of(service)
        wanted = HistoryFilter(
            code=code,
            status=JobSchedulerStatus(status.upper()) if status else None,
            state=RunState(outcome.lower()) if outcome else None,
            since=instant_of(since, clock, "--since") if since is not None else None,
            until=instant_of(until, clock, "--until") if until is not None else None,
            holder=node,
        )
        runs, more = _page(service, wanted, before, limit)
    if as_json:
        emit_json([run_as_json(run) for run in runs])
    else:
        emit_runs(runs, clock)
        if more is not None:
            say(f"There are more. The next page: the same with --before {more}")
    return ExitCode.OK


def _page(
    service: JobSchedulerService, wanted: HistoryFilter, before: int | None, limit: int
) -> tuple[list[RunRecord], int | None]:
    """Give so many runs, and where the next page begins; the library's pages are shorter, and may end early."""
    runs: list[RunRecord] = []
    while len(runs) < limit:
        asked = min(limit - len(runs), operations.PAGE_LIMIT)
        page = ask(service, operations.history, wanted, before=before, limit=asked)
        runs += page.runs
        before = page.before
        if before is None:
            return runs, None
    # it says that there is a next page also where that is empty
    return runs, before if ask(service, operations.history, wanted, before=before, limit=1).runs else None


@click.command(
    epilog="""\b
Examples:
  tenure show 6f1c2b9e-0d5e-4b7a-9a39-0f8f2f0a4c11
  tenure show "$TENURE_IDEMPOTENCY_KEY" --json | jq .attempts
Each attempt has its holder, when it began, how it ended and what it left;
then come the release, retry and skip that operators asked for, and why."""
)
@click.argument("run", metavar="ID|KEY")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@connection_options
def show(*, connection: Connection, run: str, as_json: bool) -> int:
    """Show one run's whole life, by its id (a UUID) or its idempotency key (v2:...)."""
    with connection.service() as service:
        life = find_life(service, run)
    if life is None:
        return ExitCode.NEGATIVE
    if as_json:
        emit_json(life_as_json(life))
    else:
        emit_life(life)
    return ExitCode.OK


def find_life(service: JobSchedulerService, name: str) -> RunLife | None:
    """Find a run's life by its id or its idempotency key; `None`, and that is said, if there is no such run."""
    wanted = _read_id(name)
    life = ask(service, operations.life, wanted) if isinstance(wanted, UUID) or is_text(wanted) else None
    if life is None:
        say(f"There is no run with the {'id' if isinstance(wanted, UUID) else 'key'} {name}. See: tenure ls")
    return life


def _read_id(text: str) -> UUID | str:
    try:
        return UUID(text)
    except ValueError:
        return text
