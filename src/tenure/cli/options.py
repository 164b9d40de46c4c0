"""Options that several verbs share: durations, instants and schedules, read and checked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from tenure import InvalidJobOptionsError, JobAcquireOptions
from tenure.cli.codes import codes_that_begin
from tenure.cli.connection import Command
from tenure.durations import parse_duration

if TYPE_CHECKING:
    from tenure.scheduling import Schedule

_MILLISECOND = timedelta(milliseconds=1)

Moment: TypeAlias = datetime | timedelta
"""An instant, or so long ago."""


def duration_option(name: str, help_text: str, default: str | None = None) -> Callable[[Command], Command]:
    """Add an option that takes a duration as people write it (C1.1)."""
    return click.option(
        name, metavar="DURATION", callback=_read_duration, default=default, show_default=True, help=help_text
    )


def instant_option(name: str, help_text: str) -> Callable[[Command], Command]:
    """Add an option that takes an instant in ISO 8601, with its offset from UTC."""
    return click.option(name, metavar="INSTANT", callback=_read_instant, help=help_text)


def moment_option(name: str, help_text: str, default: str | None = None) -> Callable[[Command], Command]:
    """Add an option that takes an instant, or how long ago it is: a datetime or a timedelta."""
    return click.option(
        name, metavar="INSTANT|AGO", callback=_read_moment, default=default, show_default=True, help=help_text
    )  # fmt: skip


def code_argument(*, required: bool = True) -> Callable[[Command], Command]:
    """Add the argument that names a job."""
    return click.argument("code", required=required, callback=_read_code, shell_complete=codes_that_begin)


def reason_option(*, required: bool) -> Callable[[Command], Command]:
    """Add the option that says why."""
    return click.option(
        "--reason", metavar="TEXT", required=required, callback=_read_reason, help="Why, for those who look later."
    )


def schedule_options(command: Command) -> Command:
    """Add the options for a schedule; the command gets one `schedule`, which may be None."""

    @click.option("--cron", metavar="EXPRESSION", help="Five cron fields, or a word like @daily.")
    @click.option("--every", metavar="DURATION", help="A period instead, counted from 1970-01-01T00:00Z.")
    @click.option("--timezone", metavar="ZONE", help="IANA name of the zone of --cron.  [default: UTC]")
    @wraps(command)
    def wrapped(*, cron: str | None, every: str | None, timezone: str | None, **rest: Any) -> int:
        return command(schedule=_read_schedule(cron, every, timezone), **rest)

    return wrapped


def read_text(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """Refuse bytes that are no UTF-8: they arrive as lone surrogates, which no database takes."""
    if text is not None and not is_text(text):
        raise click.BadParameter("it is not valid UTF-8.")
    return text


def is_text(argument: str) -> bool:
    """Say whether an argument can be sent."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_instant(text: str, hint: str | None = None) -> datetime:
    """Read an instant; what is finer than a millisecond is cut off, as in a run key (C10.1)."""
    example = "Write it as 2026-07-20T03:00:00Z or 2026-07-20T05:00:00+02:00."
    try:
        instant = datetime.fromisoformat(text.strip())
        if instant.tzinfo is None:
            raise click.BadParameter(f"{text!r} does not say its offset from UTC. {example}", param_hint=hint)
        utc = instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is no instant. {example}", param_hint=hint) from None
    return utc - timedelta(microseconds=utc.microsecond % (_MILLISECOND // timedelta(microseconds=1)))


def _read_code(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """Give the code as it is stored (C2.2)."""
    return None if text is None else JobAcquireOptions(code=text, run_key="any").code


def _read_reason(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise click.BadParameter("it says nothing. Write why, for those who look later.")
    return read_text(context, parameter, text)


def _read_duration(_context: click.Context, _option: click.Parameter, text: str | None) -> timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except InvalidJobOptionsError as error:
        raise click.BadParameter(str(error)) from None


def _read_instant(_context: click.Context, _option: click.Parameter, text: str | None) -> datetime | None:
    return None if text is None else read_instant(text)


def _read_moment(context: click.Context, option: click.Parameter, text: str | None) -> Moment | None:
    """Read an instant, or a duration as so long ago."""
    if text is None:
        return None
    try:
        return parse_duration(text)
    except InvalidJobOptionsError:
        return _read_instant(context, option, text)


def _read_schedule(cron: str | None, every: str | None, timezone: str | None) -> Schedule | None:
    if cron is not None and every is not None:
        raise click.UsageError("--cron and --every exclude each other.")
    if timezone is not None and cron is None:
        raise click.UsageError("--timezone is that of --cron EXPRESSION. Give both.")
    if cron is None and every is None:
        return None
    from tenure.scheduling import schedule_from

    return schedule_from("cron", cron, timezone) if cron is not None else schedule_from("every", every or "")
