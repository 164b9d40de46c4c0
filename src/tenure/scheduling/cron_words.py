"""Cron fields in words, in English, for people to check what they wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure.scheduling.cron_fields import LAST, Field, progression, runs

_MOST_TIMES: Final = 6
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def describe(fields: tuple[Field, Field, Field, Field, Field]) -> str:
    """Say when a job runs: `at minute 5 of every hour, Monday to Friday`."""
    minute, hour, day, month, weekday = fields
    times = _times(minute, hour)
    days = _days(day, weekday)
    if not days and times.startswith("at ") and not hour.starred:
        days = " every day"
    months = "" if month.is_all else f", in {_months(month)}"
    return f"{times}{days}{months}"


def _times(minute: Field, hour: Field) -> str:
    if not minute.starred and not hour.starred and len(minute.values) * len(hour.values) <= _MOST_TIMES:
        return f"at {_joined([f'{h:02}:{m:02}' for h in sorted(hour.values) for m in sorted(minute.values)])}"
    if hour.is_all and _is_only_step(minute) and 60 % minute.step == 0:
        return "every minute" if minute.is_all else f"every {minute.step} minutes"
    minutes = _numbered("minute", minute)
    of_hours = _numbered("hour", hour)
    return f"{minutes} of {of_hours}" if minutes.startswith("every") else f"at {minutes} of {of_hours}"


def _numbered(noun: str, field: Field) -> str:
    """Say `every hour`, `every 2nd hour`, `hour 9`, or `hours 9 to 17 and 20`."""
    parts = [f"every {noun}" if field.step == 1 else f"every {_ordinal(field.step)} {noun}"] if field.starred else []
    left = field.beside_step
    step = progression(left)
    if step:
        parts.append(f"every {_ordinal(step)} {noun} from {left[0]} to {left[-1]}")
    elif left:
        numbers = [f"{run[0]} to {run[-1]}" if len(run) > 2 else _joined(run) for run in runs(left)]
        parts.append(f"{noun}{'s' if len(left) > 1 else ''} {_joined(numbers)}")
    return " and ".join(parts)


def _is_only_step(field: Field) -> bool:
    return field.starred and not field.beside_step


def _days(day: Field, weekday: Field) -> str:
    if day.is_all and weekday.is_all:
        return ""
    if day.is_all:
        return f", {_of_week(weekday)}"
    if weekday.is_all:
        return f" on {_of_month(day)}"
    # Both must match if either begins with a star.
    either = ", if it is" if day.starred or weekday.starred else " or"
    return f" on {_of_month(day)}{either} {_of_week(weekday)}"


def _of_month(day: Field) -> str:
    parts = [_numbered("day", day)] if day.starred or day.values else []
    parts += [_before_last(days) for days in sorted(day.before_last, reverse=True)]
    return f"{_joined(parts)} of the month"


def _before_last(days: int) -> str:
    return f"the last day but {days}" if days else "the last day"


def _of_week(weekday: Field) -> str:
    parts: list[str] = []
    values = sorted((value - 1) % 7 for value in weekday.values)
    for run in runs(values):
        names = [_WEEKDAYS[value] for value in run]
        parts += [f"{names[0]} to {names[-1]}"] if len(names) > 2 else names
    nth = sorted(weekday.nth, key=lambda pair: (pair[1] == LAST, pair[1], pair[0]))
    named = [f"the {'last' if which == LAST else _ordinal(which)} {_WEEKDAYS[(of - 1) % 7]}" for of, which in nth]
    return _joined(parts + named) + (" of the month" if named else "")


def _months(month: Field) -> str:
    found = [[_MONTHS[value - 1] for value in run] for run in runs(sorted(month.values))]
    return _joined([name for run in found for name in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)])


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number in (11, 12, 13) else ending}"


def _joined(parts: Sequence[object]) -> str:
    texts = [str(part) for part in parts]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
