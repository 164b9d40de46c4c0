"""The times that five fields name, on a calendar without time zones."""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime
from typing import Final

from tenure.scheduling.cron_fields import LAST, Field

# A few days within the ends of the calendar, so that offsets can be added and taken away.
_FIRST: Final = datetime(MINYEAR, 1, 4)
_LAST: Final = datetime(MAXYEAR, 12, 28)


@dataclass(frozen=True, slots=True)
class CronCalendar:
    """Step from one named time to the next. What is a matter of arithmetic is worked out before.

    `minutes` are minutes of a day, in order. `days` are the days of a month as bits, for each kind of month: by its
    number, its length and the weekday of its first day (Monday is 0).
    """

    minutes: tuple[int, ...]
    days: dict[tuple[int, int, int], int]

    def first_after(self, local: datetime) -> datetime | None:
        """Give the first time that is strictly later, whole minutes; None at the end of the calendar."""
        year, month, day = local.year, local.month, local.day
        later = bisect_right(self.minutes, local.hour * 60 + local.minute)
        if later < len(self.minutes) and self._days(year, month) >> day & 1:
            return _at(year, month, day, self.minutes[later])
        left = self._days(year, month) >> (day + 1) << (day + 1)
        while not left:
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            if year > MAXYEAR:
                return None
            left = self._days(year, month)
        found = _at(year, month, (left & -left).bit_length() - 1, self.minutes[0])
        return found if found <= _LAST else None

    def last_until(self, local: datetime) -> datetime | None:
        """Give the last time that is not later, whole minutes; None at the beginning of the calendar."""
        year, month, day = local.year, local.month, local.day
        later = bisect_right(self.minutes, local.hour * 60 + local.minute)
        if later and self._days(year, month) >> day & 1:
            return _at(year, month, day, self.minutes[later - 1])
        left = self._days(year, month) & ((1 << day) - 1)
        while not left:
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            if year < MINYEAR:
                return None
            left = self._days(year, month)
        found = _at(year, month, left.bit_length() - 1, self.minutes[-1])
        return found if found >= _FIRST else None

    def names(self, local: datetime) -> bool:
        """Say whether it is one of the times, to the microsecond."""
        return self.last_until(local) == local

    def _days(self, year: int, month: int) -> int:
        first_weekday, length = monthrange(year, month)
        return self.days.get((month, length, first_weekday), 0)


def calendar_of(fields: tuple[Field, Field, Field, Field, Field]) -> CronCalendar | None:
    """Work a calendar out; None if no month has such a day, in all the 400 years after which the calendar repeats."""
    minute, hour, day, month, weekday = fields
    kinds = [(number, length) for number in month.values for length in _lengths(number)]
    shapes = {(length, first): 0 for _, length in kinds for first in range(7)}
    shapes = {shape: _days_of(*shape, day, weekday) for shape in shapes}
    days = {(number, length, first): shapes[length, first] for number, length in kinds for first in range(7)}
    minutes = sorted(h * 60 + m for h in hour.values for m in minute.values)
    return CronCalendar(tuple(minutes), days) if any(days.values()) else None


def _lengths(month: int) -> tuple[int, ...]:
    return (28, 29) if month == 2 else (monthrange(2000, month)[1],)


def _days_of(length: int, first_weekday: int, day: Field, weekday: Field) -> int:
    """Give the days of a month as bits, bit 1 for its first.

    If either field begins with a star both must match, else one is enough (Vixie's DOM_STAR and DOW_STAR).
    """
    by_day = _bits([*day.values, *(length - back for back in day.before_last)])
    by_weekday = _bits(
        number
        for number in range(1, length + 1)
        if (of_week := (first_weekday + number) % 7) in weekday.values
        or (of_week, (number + 6) // 7) in weekday.nth
        or (number + 7 > length and (of_week, LAST) in weekday.nth)
    )
    both = by_day & by_weekday if day.starred or weekday.starred else by_day | by_weekday
    return both & ((2 << length) - 2)


def _bits(numbers: Iterable[int]) -> int:
    bits = 0
    for number in numbers:
        if number > 0:
            bits |= 1 << number
    return bits


def _at(year: int, month: int, day: int, minute: int) -> datetime:
    return datetime(year, month, day, minute // 60, minute % 60)
