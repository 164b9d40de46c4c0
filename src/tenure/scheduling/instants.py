"""Instants as they come in and go out: aware outside, naive UTC inside, text as a run key (C10.1).

Ticks lie between `EARLIEST` and `LATEST`. The days beyond, at both ends of the calendar, are left free, so that no
time zone and no look ahead leaves the calendar.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from tenure import identity
from tenure.errors import InvalidScheduleError

EARLY_TOLERANCE: Final = timedelta(milliseconds=250)
"""How much before a tick an instant already belongs to it (C10.2)."""

EARLIEST: Final = datetime(1, 1, 8)
LATEST: Final = datetime(9999, 12, 24)
MICROSECOND: Final = timedelta(microseconds=1)


def run_key(tick: datetime) -> str:
    """Write a tick as JavaScript's `toISOString` does: `2026-07-20T03:00:00.000Z` (C10.1).

    Any aware datetime will do; what is finer than a millisecond is cut off.
    Raises `InvalidScheduleError` for a naive datetime, for anything else, and for an instant whose year in UTC is not
    1 to 9999.
    """
    checked = _checked_aware("tick", tick)
    try:
        return checked.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    except OverflowError:
        raise InvalidScheduleError(
            "tick must lie in the years 1 to 9999 of UTC; an instant outside of them was given. Give another."
        ) from None


def naive_utc(instant: object, ahead: timedelta = timedelta(0)) -> datetime:
    """Check an instant and give what is so much later, in UTC without a zone, at most just out of bounds.

    Raises `InvalidScheduleError` for a naive datetime and for anything else.
    """
    aware = _checked_aware("instant", instant)
    try:
        utc = aware.astimezone(UTC)
    except OverflowError:
        utc = (datetime.min if aware.year == 1 else datetime.max).replace(tzinfo=UTC)
    # A subclass of datetime may bring an arithmetic of its own.
    plain = datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond)
    beyond = LATEST + MICROSECOND
    return min(max(min(plain, beyond) + ahead, EARLIEST - MICROSECOND), beyond)


def aware_utc(tick: datetime | None) -> datetime | None:
    """Give a naive UTC tick as an aware datetime; None for one out of bounds."""
    return None if tick is None or not EARLIEST <= tick <= LATEST else tick.replace(tzinfo=UTC)


def _checked_aware(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidScheduleError(
            f"{name} must be an aware datetime; {identity.shown(value)} was given. Give datetime.now(UTC), say."
        )
    if value.utcoffset() is None:
        raise InvalidScheduleError(
            f"{name} must be an aware datetime; {datetime.isoformat(value)} has no time zone. "
            "If it is UTC, give it with .replace(tzinfo=UTC)."
        )
    return value
