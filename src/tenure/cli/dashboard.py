"""`tenure dashboard`: the page for operators, served here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, say
from tenure.cli.output import emit

if TYPE_CHECKING:
    from tenure.web import BasicAuth

PASSWORD_VARIABLE: Final = "TENURE_DASHBOARD_PASSWORD"  # noqa: S105 - its name


@click.command()
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True, help="0 for any that is free.")
@click.option(
    "--writable", is_flag=True, help="Let people release, retry, skip, pause and trigger. Else it only shows."
)
@click.option(
    "--user",
    default="operator",
    show_default=True,
    help=f"Who may look, with the password in ${PASSWORD_VARIABLE}; without that variable nobody is asked.",
)
@connection_options
def dashboard(*, connection: Connection, host: str, port: int, writable: bool, user: str) -> int:
    """Serve a page that shows jobs, runs and nodes, live.

    Without a password it is served to this machine alone, and says so. It is plain HTTP: for other machines put a proxy
    with TLS before it. Exit code 69: the port cannot be had.

    \b
    Examples:
      tenure dashboard
      TENURE_DASHBOARD_PASSWORD=... tenure dashboard --host 0.0.0.0 --writable
    """
    try:
        from tenure.web import create_app, serve
        from tenure.web.auth import LOOPBACK_NAMES, is_loopback
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    auth = _auth(user)
    if auth is None and not is_loopback(host):
        raise click.UsageError(
            f"--host {host} is open to other machines, and nobody would be asked who they are. "
            f"Set ${PASSWORD_VARIABLE}, or leave --host out."
        )
    with connection.service() as service:
        hosts = (*LOOPBACK_NAMES, host) if auth is None else None
        app = create_app(service, auth=auth, writable=writable, hosts=hosts)
        try:
            serve(app, host=host, port=port, ready=lambda address: _announce(address, auth, writable=writable))
        except OSError as error:
            say(f"Port {port} of {host} cannot be had: {error.strerror or error}. Give another --port.")
            return ExitCode.UNAVAILABLE
    return ExitCode.OK


def _auth(user: str) -> BasicAuth | None:
    from tenure.web import BasicAuth

    password = os.environ.get(PASSWORD_VARIABLE)
    return BasicAuth(user, password) if password else None


def _announce(address: str, auth: BasicAuth | None, *, writable: bool) -> None:
    emit(f"Serving at {address} ({'acting is switched on' if writable else 'read only'}). Ctrl-C ends it.")
    if auth is None:
        say(
            "THE PAGE HAS NO AUTHENTICATION: every user of this machine "
            f"{'sees and does' if writable else 'sees'} everything. Set ${PASSWORD_VARIABLE} to ask who they are."
        )
