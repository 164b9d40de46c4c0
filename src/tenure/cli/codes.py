"""The codes of jobs that a shell offers behind a verb."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from typing import Final

import click

from tenure import TenureError
from tenure.cli.connection import Connection, url_from_environment
from tenure.errors import InvalidJobOptionsError
from tenure.statements import DEFAULT_SCHEMA, DEFAULT_TABLE, Table

_PATIENCE_S: Final = 2.0
"""Who waits for a shell's answer does not wait for a database that is away."""


def codes_that_begin(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer the registered jobs' codes; none if the database does not tell them soon, and never an error."""
    found: list[str] = []
    try:
        connection = _connection(context)
    except InvalidJobOptionsError:
        return found
    asking = Thread(target=_ask, args=(connection, found), daemon=True)
    asking.start()
    asking.join(_PATIENCE_S)
    return [code for code in tuple(found) if code.startswith(incomplete)]


def _connection(context: click.Context) -> Connection:
    given = context.params
    table = Table(given.get("schema") or DEFAULT_SCHEMA, given.get("table") or DEFAULT_TABLE)
    return Connection(given.get("database_url") or url_from_environment(), embedded=False, table=table)


def _ask(connection: Connection, found: list[str]) -> None:
    from tenure.clock import boot_s
    from tenure.operating import ALIVE
    from tenure.scheduling import operations
    from tenure.scheduling.statements import SchedulingStatements

    with suppress(TenureError), connection.service() as service:
        jobs = service.perform(operations.job_records(SchedulingStatements(service.table), ALIVE, now_boot_s=boot_s()))
        found.extend(job.code for job in jobs if job.fingerprint is not None)
