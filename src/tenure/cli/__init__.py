"""The command `tenure`. Each verb is imported when it is used, so that `tenure run` starts fast."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

import click

from tenure import TenureError
from tenure.cli.errors import STDERR, ExitCode, OutputError, explain, explain_usage, help_without_verb, say

if TYPE_CHECKING:
    import io

_VERBS = {
    "run": "tenure.cli.run",
    "worker": "tenure.cli.worker",
    "next": "tenure.cli.upcoming",
    "status": "tenure.cli.status",
    "ls": "tenure.cli.runs",
    "show": "tenure.cli.runs",
    "timeline": "tenure.cli.timeline",
    "why": "tenure.cli.why",
    "release": "tenure.cli.acting",
    "retry": "tenure.cli.acting",
    "skip": "tenure.cli.acting",
    "pause": "tenure.cli.jobs",
    "resume": "tenure.cli.jobs",
    "trigger": "tenure.cli.jobs",
    "prune": "tenure.cli.jobs",
    "dashboard": "tenure.cli.dashboard",
    "doctor": "tenure.cli.doctor",
    "schema": "tenure.cli.schema",
    "completion": "tenure.cli.completion",
    "demo": "tenure.cli.demo",
}


class _Verbs(click.Group):
    """Import a verb's module when the verb is asked for; one whose module is not installed is not there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verb in _VERBS if self.get_command(ctx, verb)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        module = _VERBS.get(cmd_name)
        if module is None:
            return None
        try:
            command = getattr(import_module(module), cmd_name)
        except ModuleNotFoundError as error:
            if error.name == module:
                return None
            raise
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Exit codes:
    0  done
    1  no such run or job, nobody runs it, an act was refused, the schema has
       faults, the doctor found something bad, or the demo saw a double or a loss
    2  the command line or an option is wrong; of status: something is overdue
       or exhausted
   69  the database cannot be reached, is busy, or refused
   74  an outcome could not be recorded, or the output not written
   75  the lease was lost
   77  the database role lacks a grant
   78  the schema is missing or old
  130  interrupted
`tenure run --help` and `tenure worker --help` have more.""",
)
@click.version_option(package_name="tenure", message="%(prog)s %(version)s")
@click.pass_context
def tenure(context: click.Context) -> int:
    """Run each scheduled job on one node: PostgreSQL leases for N copies of a service."""
    return help_without_verb(context)


def main(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code; errors that a user can mend are one line (C11)."""
    _prepare_streams()
    try:
        return int(tenure.main(list(arguments), prog_name="tenure", standalone_mode=False) or ExitCode.OK)
    except click.ClickException as error:
        return explain_usage(error)
    except click.Abort:
        return ExitCode.INTERRUPTED
    except TenureError as error:
        return explain(error)
    except OutputError as error:
        return _output_failed(error.cause)


def leave_logging_to_the_application() -> None:
    """Let the library's log go where an application's own goes, if it has said where; else it is said as before."""
    if logging.getLogger().hasHandlers():
        library = logging.getLogger("tenure")
        library.handlers = [handler for handler in library.handlers if not isinstance(handler, _Saying)]
        library.propagate = True


def _prepare_streams() -> None:
    """Let no character that the terminal's encoding lacks be an error; send the library's warnings to stderr."""
    _open_what_is_closed()
    cast("io.TextIOWrapper", sys.stdout).reconfigure(errors="backslashreplace")
    library = logging.getLogger("tenure")
    library.addHandler(_Saying())
    library.propagate = False
    # The pool repeats, attempt by attempt, what the error of the call says once.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)


def _open_what_is_closed() -> None:
    """Give stdin, stdout and stderr a place if they have none, or a connection may get their number and their text."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(null)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - it stays open


class _Saying(logging.Handler):
    """Say a warning of the library as the command line says its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            say(record.getMessage())


def _output_failed(cause: OSError) -> int:
    """End quietly when the reader of a pipe has gone; say what else keeps the output from being written."""
    # What is still buffered goes nowhere, or the interpreter would complain about it at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(cause, BrokenPipeError):
        return ExitCode.PIPE_CLOSED
    say(f"The output could not be written: {cause.strerror or cause}.")
    return ExitCode.NOT_RECORDED
