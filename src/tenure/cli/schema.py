"""`tenure schema print`, `apply` and `check` (C9.1)."""

from __future__ import annotations

import click

from tenure.cli.connection import Connection, connection_options, table_options
from tenure.cli.errors import ExitCode, help_without_verb, plain
from tenure.cli.output import emit, emit_json
from tenure.statements import Table


@click.group(invoke_without_command=True)
@click.pass_context
def schema(context: click.Context) -> int:
    """Print, apply or check the schema."""
    return help_without_verb(context)


@schema.command(name="print")
@table_options
def print_schema(*, table: Table) -> int:
    """Print the whole schema as SQL, to be applied with a tool of your own. Needs no database."""
    from tenure.schema import script

    emit(script(table))
    return ExitCode.OK


@schema.command()
@connection_options
def apply(*, connection: Connection) -> int:
    """Apply the migrations that are missing, all or none; applying twice is harmless."""
    with connection.service() as service:
        applied = service.migrate()
    table = plain(connection.table.quoted)
    emit("\n".join(f"{table}: applied {name}" for name in applied) or f"{table}: up to date")
    return ExitCode.OK


@schema.command()
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
