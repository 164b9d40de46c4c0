"""`tenure schema print`, `apply`, `check` and `adopt` (C9.1, C9.3)."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from tenure.cli.connection import Connection, connection_options, table_options
from tenure.cli.errors import ExitCode, help_without_verb, plain, say
from tenure.cli.output import emit, emit_json
from tenure.durations import parse_duration
from tenure.errors import InvalidJobOptionsError
from tenure.statements import Table

if TYPE_CHECKING:
    from tenure.adoption import Adoption


@click.group(invoke_without_command=True)
@click.pass_context
def schema(context: click.Context) -> int:
    """Print, apply, check or adopt the schema."""
    return help_without_verb(context)


@schema.command(
    name="print",
    epilog="""\b
Example:
  tenure schema print --schema ops > tenure.sql""",
)
@table_options
def print_schema(*, table: Table) -> int:
    """Print the whole schema as SQL, to be applied with a tool of your own. Needs no database."""
    from tenure.schema import script

    emit(script(table))
    return ExitCode.OK


@schema.command(
    epilog="""\b
Example:
  tenure schema apply --database-url postgresql://app@db/shop"""
)
@connection_options
def apply(*, connection: Connection) -> int:
    """Apply the migrations that are missing, all or none; applying twice is harmless."""
    with connection.service() as service:
        applied = service.migrate()
    table = plain(connection.table.quoted)
    emit("\n".join(f"{table}: applied {name}" for name in applied) or f"{table}: up to date")
    return ExitCode.OK


@schema.command(
    epilog="""\b
Example:
  tenure schema check --json"""
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object: ok, faults.")
@connection_options
def check(*, connection: Connection, as_json: bool) -> int:
    """Say what is missing or different in the schema, and how to mend it; exit 1 if anything is."""
    with connection.service() as service:
        faults = service.check_schema()
    if as_json:
        emit_json({"ok": not faults, "faults": faults})
    else:
        emit("\n".join(map(plain, faults)) or f"{plain(connection.table.quoted)}: as it should be")
    return ExitCode.NEGATIVE if faults else ExitCode.OK


@schema.command(
    epilog="""\b
Examples:
  tenure schema adopt --dry-run
  tenure schema adopt --written-in-time-zone Asia/Ho_Chi_Minh --yes"""
)
@click.option(
    "--written-in-time-zone",
    "zone",
    metavar="ZONE",
    help="Time zone of the sessions that wrote the table's times, such as Asia/Ho_Chi_Minh; asked for on a terminal.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, as SQL, and change nothing.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option(
    "--lock-timeout", metavar="DURATION", default="15s", show_default=True, help="How long to wait for the table."
)
@connection_options
def adopt(*, connection: Connection, zone: str | None, dry_run: bool, yes: bool, lock_timeout: str) -> int:
    """Make the table of NestJS nodes fit for tenure: all or nothing, and again is harmless.

    Prints what it will do and asks first. NestJS nodes may go on using the table.
    """
    if connection.embedded:
        raise click.UsageError("--embedded is a server of your own, without a NestJS table. Give --database-url.")
    limit = _lock_timeout(lock_timeout)
    planned, zone = _planned(connection, zone)
    if not planned.steps:
        emit(f"{plain(connection.table.quoted)}: nothing to do")
        return ExitCode.OK
    _show(planned)
    if dry_run:
        return ExitCode.OK
    if not yes and not _agreed(connection.table):
        say("Nothing was changed.")
        return ExitCode.NEGATIVE
    return _adopt(connection, planned, zone, limit)


def _planned(connection: Connection, zone: str | None) -> tuple[Adoption, str | None]:
    """Give the plan, and the time zone it stands on; on a terminal, ask for one until it fits."""
    from tenure.adoption import TimeZoneError, plan

    while True:
        try:
            made = plan(
                connection.url,
                schema=connection.table.schema,
                table=connection.table.name,
                written_in_time_zone=zone,
            )
        except TimeZoneError as error:
            if not sys.stdin.isatty():
                raise click.UsageError(f"{error} Use --written-in-time-zone.") from None
            say(str(error))
            zone = click.prompt("Time zone", err=True)
        else:
            return made, zone


def _show(planned: Adoption) -> None:
    lines = [f"-- {note}" for note in planned.notes] + planned.script().split("\n")
    emit("\n".join(map(plain, lines)))


def _agreed(table: Table) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("Nothing was changed. Without a terminal to ask on, give --yes to do it.")
    return click.confirm(f"Do this to {plain(table.quoted)}?", err=True)


def _adopt(connection: Connection, planned: Adoption, zone: str | None, limit: timedelta) -> int:
    from tenure.adoption import adopt as carry_out

    carry_out(
        connection.url,
        schema=connection.table.schema,
        table=connection.table.name,
        written_in_time_zone=zone,
        lock_timeout=limit,
        agreed=planned,
    )
    emit(f"{plain(connection.table.quoted)}: adopted")
    return ExitCode.OK


def _lock_timeout(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except InvalidJobOptionsError as error:
        raise click.BadParameter(str(error), param_hint="--lock-timeout") from None
