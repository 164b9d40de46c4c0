"""The options that say which table of which database, shared by all verbs."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import click

from tenure import JobSchedulerService
from tenure.statements import DEFAULT_SCHEMA, DEFAULT_TABLE, Table

VARIABLES = ("TENURE_DATABASE_URL", "DATABASE_URL")

Command = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Connection:
    """Say where the runs are."""

    url: str | None = field(repr=False)
    """A connection string; `None` for libpq's own variables."""
    embedded: bool
    table: Table

    @contextmanager
    def service(self) -> Generator[JobSchedulerService]:
        """Give a service on that table; with `--embedded` on the kept local server, with the schema applied."""
        with ExitStack() as stack:
            url = stack.enter_context(_local_server()) if self.embedded else self.url
            service = JobSchedulerService(url, schema=self.table.schema, table=self.table.name)
            stack.callback(service.close)
            if self.embedded:
                service.migrate()
            yield service


def connection_options(command: Command) -> Command:
    """Add the options for a database and a table; the command gets one `connection`."""

    @click.option(
        "--database-url",
        metavar="URL",
        help="PostgreSQL to use, as a URL or key=value pairs; left out: $TENURE_DATABASE_URL, $DATABASE_URL, then "
        "libpq's own variables. A password is better kept in the environment: others can read a command line.",
    )
    @click.option("--embedded", is_flag=True, help="Use a local server of your own, kept in your data folder.")
    @table_options
    @wraps(command)
    def wrapped(*, database_url: str | None, embedded: bool, table: Table, **rest: Any) -> int:
        if embedded and database_url is not None:
            raise click.UsageError("--embedded and --database-url exclude each other.")
        url = database_url or url_from_environment()
        return command(connection=Connection(url, embedded, table), **rest)

    return wrapped


def table_options(command: Command) -> Command:
    """Add the options for the name of the table; the command gets one `table`."""

    @click.option("--schema", metavar="NAME", default=DEFAULT_SCHEMA, show_default=True, help="Schema of the table.")
    @click.option("--table", metavar="NAME", default=DEFAULT_TABLE, show_default=True, help="Table of the runs.")
    @wraps(command)
    def wrapped(*, schema: str, table: str, **rest: Any) -> int:
        return command(table=Table(schema, table), **rest)

    return wrapped


def url_from_environment() -> str | None:
    """Give the connection string of the environment, if there is one."""
    return next((value for name in VARIABLES if (value := os.environ.get(name))), None)


@contextmanager
def _local_server() -> Generator[str]:
    from tenure.embedded import share

    with share() as server:
        yield server.url()
