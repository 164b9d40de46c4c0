"""The rule of schedules told again, as simply as can be: walk over UTC, look at the clock, write down when it is time.

Nothing here is taken from `tenure.scheduling`: a field is a set of numbers with a flag for its star.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LOCAL_NAMES = ("posix", "right/", "localtime", "Factory")


@dataclass(frozen=True)
class Meaning:
    """What an expression means: sets of numbers, and which fields begin with a star. Sunday is 0.

    `before_last` are days back from the last of the month, `nth` pairs of a weekday and its number (-1 is the last).
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] = frozenset(range(1, 32))
    months: frozenset[int] = frozenset(range(1, 13))
    weekdays: frozenset[int] = frozenset(range(7))
    stars: frozenset[str] = frozenset({"day", "weekday"})
    before_last: frozenset[int] = frozenset()
    nth: frozenset[tuple[int, int]] = frozenset()

    def names_day(self, day: date) -> bool:
        week = day.isoweekday() % 7
        last = (day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
        of_month = day.day in self.days or (last - day).days in self.before_last
        of_week = week in self.weekdays or (week, (day.day - 1) // 7 + 1) in self.nth
        of_week = of_week or ((last - day).days < 7 and (week, -1) in self.nth)
        both = of_month and of_week if self.stars & {"day", "weekday"} else of_month or of_week
        return day.month in self.months and both

    def names_minute(self, minutes_since_epoch: int) -> bool:
        """Say whether a minute on the local clock is one of the times."""
        days, minute = divmod(minutes_since_epoch, 1440)
        if minute % 60 not in self.minutes or minute // 60 not in self.hours:
            return False
        return self.names_day(date(1970, 1, 1) + timedelta(days=days))


class Transition(NamedTuple):
    """A change of a zone's offset: when, from what to what, and a zone that has it."""

    at: datetime
    before: timedelta
    after: timedelta
    zone: str


class Walk:
    """Look at the clock of a zone at each step from one instant to another."""

    def __init__(self, zone: ZoneInfo, start: datetime, end: datetime, step: timedelta) -> None:
        self.start, self.end = start, end
        # Two days before, the clock has shown nothing later than what it shows at the start.
        furthest = _local_s(start - 2 * timedelta(days=1), zone)
        self.shown: list[tuple[datetime, int]] = []
        self.reached: list[tuple[datetime, int]] = []
        warm_up = start - timedelta(days=2)
        while warm_up < start:
            warm_up += timedelta(minutes=15)
            furthest = max(furthest, _local_s(warm_up, zone))
        at = start
        while (at := at + step) <= end:
            local_s = _local_s(at, zone)
            if local_s % 60 == 0:
                self.shown.append((at, local_s // 60))
            if local_s > furthest:
                self.reached += [(at, minute) for minute in range(furthest // 60 + 1, local_s // 60 + 1)]
                furthest = local_s

    def ticks(self, meaning: Meaning) -> list[datetime]:
        """Tell the ticks later than the start and not later than the end."""
        follows_elapsed_time = meaning.stars & {"minute", "hour"}
        seen = self.shown if follows_elapsed_time else self.reached
        times = {hour * 60 + minute for hour in meaning.hours for minute in meaning.minutes}
        # Most minutes are none of the times; days are looked at for the others only.
        found = [at for at, minute in seen if minute % 1440 in times and meaning.names_minute(minute)]
        return sorted(set(found))


def _local_s(at: datetime, zone: ZoneInfo) -> int:
    return (at.astimezone(zone).replace(tzinfo=UTC) - EPOCH) // SECOND


@cache
def zone_names() -> list[str]:
    """Name the zones that every machine has, once each."""
    return sorted(name for name in available_timezones() if not name.startswith(LOCAL_NAMES))


@cache
def transitions(first_year: int, end_year: int) -> list[Transition]:
    """Find every change of offset of every zone in these years; zones that change alike count once."""
    found: dict[tuple[datetime, timedelta, timedelta], str] = {}
    for name in zone_names():
        for at, before, after in _changes(ZoneInfo(name), first_year, end_year):
            found.setdefault((at, before, after), name)
    return [Transition(*key, name) for key, name in sorted(found.items())]


def _changes(zone: ZoneInfo, first_year: int, end_year: int) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    at, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(end_year, 1, 1, tzinfo=UTC)
    while at < end:
        later = at + timedelta(days=2)
        before, after = at.astimezone(zone).utcoffset(), later.astimezone(zone).utcoffset()
        assert before is not None
        assert after is not None
        if before != after:
            low, high = at, later
            while high - low > SECOND:
                middle = low + (high - low) // SECOND // 2 * SECOND
                low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
            yield high, before, after
        at = later


def whole_history() -> bool:
    """Say whether the long form was asked for: every change on record, which takes many minutes."""
    return os.environ.get("TENURE_EVERY_TRANSITION") == "1"
