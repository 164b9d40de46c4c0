"""Exit codes, and errors as one line on stderr. The codes are those of sysexits.h where it has one.

====  ===========================================================================================
code  meaning
====  ===========================================================================================
0     done; for `tenure run` also: skipped, unless `--skip-exit-code` says otherwise; for `tenure worker`: stopped by a
      signal, and every run here ended or released
1     no such run or job, or nobody runs it; an act was refused; the schema has faults; `tenure doctor` found something
      bad; the command line's own packages are missing
2     the command line or an option is wrong; nothing was sent; for `tenure worker` also: there is no such scheduler;
      for `tenure status`: something is overdue or exhausted
69    the database, or the local server, cannot be reached, is busy, read-only, or refused; a port cannot be had
74    the command succeeded, but that could not be recorded; or the output could not be written
75    the lease was lost: the command was stopped, or its outcome came too late to be recorded
77    the database role lacks a grant; the message has the GRANT
78    the schema is missing or old; run `tenure schema apply`
126   the command was found, but cannot be executed
127   the command was not found
128+N the command was ended by signal N, or tenure was before the command had begun
130   interrupted
141   the reader of the output has gone (`| head`)
other the command's own exit code
====  ===========================================================================================
"""

from __future__ import annotations

import os
import re
import select
from contextlib import suppress
from enum import IntEnum

import click

from tenure import (
    DatabaseProblem,
    InvalidJobOptionsError,
    JobDatabaseError,
    LostJobLeaseError,
    OutcomeNotRecordedError,
    TenureError,
)
from tenure.errors import EmbeddedPostgresError, InvalidScheduleError

STDERR = 2
_STALLED_LIMIT_S = 1.0
_LINE_LIMIT_BYTES = 4_000  # so much a pipe takes at once if it takes anything
_PASSWORD = re.compile(
    r"(?P<before>\w://[^\s/:@]*:)(?!password@)\S*(?=@)|(?P<key>\bpassword\s*=\s*)(?:'(?:[^'\\]|\\.)*'|\S+)", re.I
)


class ExitCode(IntEnum):
    """Name the exit codes that are ours."""

    OK = 0
    NEGATIVE = 1
    USAGE = 2
    ATTENTION = 2
    """Something is overdue or exhausted: what monitors know as critical."""
    UNAVAILABLE = 69
    NOT_RECORDED = 74
    LEASE_LOST = 75
    NO_PERMISSION = 77
    SCHEMA = 78
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    SIGNALLED = 128
    """Plus the number of the signal."""
    INTERRUPTED = 130
    PIPE_CLOSED = 141


_OF_PROBLEM = {
    DatabaseProblem.SCHEMA_MISSING: ExitCode.SCHEMA,
    DatabaseProblem.SCHEMA_OLD: ExitCode.SCHEMA,
    DatabaseProblem.GRANT_MISSING: ExitCode.NO_PERMISSION,
}
_OF_ERROR: dict[type[TenureError], ExitCode] = {
    InvalidJobOptionsError: ExitCode.USAGE,
    OutcomeNotRecordedError: ExitCode.NOT_RECORDED,
    LostJobLeaseError: ExitCode.LEASE_LOST,
    EmbeddedPostgresError: ExitCode.UNAVAILABLE,
}


class OutputError(Exception):
    """Say that stdout does not take what is written to it."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def exit_code_of(error: TenureError) -> ExitCode:
    """Give the exit code for an error of the library."""
    if isinstance(error, JobDatabaseError):
        return _OF_PROBLEM.get(error.problem, ExitCode.UNAVAILABLE)
    return next((code for kind, code in _OF_ERROR.items() if isinstance(error, kind)), ExitCode.NEGATIVE)


def say(message: str) -> None:
    """Write one line to stderr, harmless on a terminal and without passwords.

    Past Python's buffers, since signal handlers say things too. A stderr that is gone is no error, and a reader of it
    that stalls does not stall us.
    """
    line = f"tenure: {plain(without_passwords(message))}".encode("utf-8", "backslashreplace")
    with suppress(OSError):
        if select.select([], [STDERR], [], _STALLED_LIMIT_S)[1]:
            os.write(STDERR, line[:_LINE_LIMIT_BYTES] + b"\n")


def explain(error: TenureError) -> int:
    """Say what an error of the library says, and give the exit code; a caret below an expression stays where it is."""
    lines = str(error).split("\n") if isinstance(error, InvalidScheduleError) else [str(error)]
    for line in lines:
        say(line)
    return exit_code_of(error)


def explain_usage(error: click.ClickException) -> int:
    """Say what is wrong with the command line, and give the exit code."""
    say(" ".join(error.format_message().split("\n")))
    if isinstance(error, click.UsageError) and error.ctx:
        say(f"See: {error.ctx.command_path} --help")
    return error.exit_code


def help_without_verb(context: click.Context) -> int:
    """Show the help of a group that was given no verb, which is a mistake."""
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    click.echo(context.get_help(), err=True)
    return ExitCode.USAGE


def plain(text: str) -> str:
    """Make text harmless to show: whatever is not printable, such as an escape sequence, is written as its escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def without_passwords(text: str) -> str:
    """Blank the passwords of connection strings that were typed where they do not belong (C11)."""
    return _PASSWORD.sub(lambda match: f"{match['before'] or match['key']}***", text)
