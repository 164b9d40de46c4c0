"""A schedule from what is written of it: in the table of jobs, or on a command line."""

from __future__ import annotations

from tenure import identity
from tenure.durations import parse_duration
from tenure.errors import InvalidJobOptionsError, InvalidScheduleError
from tenure.scheduling.cron import Cron
from tenure.scheduling.every import Every
from tenure.scheduling.schedule import Schedule


def schedule_from(kind: str, text: str, timezone: str | None = None) -> Schedule:
    """Make the schedule that `kind`, `text` and `timezone` of another one describe: an equal one.

    `kind` is `cron` (the text is an expression) or `every` (a duration like `1h30m`, and the time zone is UTC). A time
    zone that is left out is UTC. Raises `InvalidScheduleError`, which says what is wrong with which of them.
    """
    if kind == Cron.kind:
        return Cron(text, timezone="UTC" if timezone is None else timezone)
    if kind != Every.kind:
        raise InvalidScheduleError(f"kind must be 'cron' or 'every'; {identity.shown(kind)} was given.")
    if timezone not in (None, "UTC"):
        raise InvalidScheduleError(
            f"timezone must be UTC for a period, which is counted from the epoch; {identity.shown(timezone)} was "
            "given. Leave it out, or use a cron expression."
        )
    try:
        return Every(parse_duration(text))
    except InvalidScheduleError:
        raise
    except InvalidJobOptionsError as error:
        raise InvalidScheduleError(f"period: {error}") from None
