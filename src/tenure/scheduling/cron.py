"""Cron expressions in a time zone (C10.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from tenure.errors import InvalidScheduleError
from tenure.scheduling import cron_words
from tenure.scheduling.cron_calendar import CronCalendar, calendar_of
from tenure.scheduling.cron_fields import DAY, Field, parse, pieces_of
from tenure.scheduling.instants import MICROSECOND
from tenure.scheduling.local_clock import QUIET, LocalClock, clock_of
from tenure.scheduling.schedule import Schedule

_STRIDE: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cron(Schedule):
    """Run at the times that a cron expression names, as the clocks of a time zone show them.

    `expression` has five fields (minute, hour, day of month, month, day of week) or is a word like `@daily`. `timezone`
    is an IANA name. Two are equal when they mean the same, however they are spelled.

    **Fixed times and wildcards** (C10.3). If the minute or the hour begins with `*`, the job follows elapsed time: it
    ticks at each instant at which the clock shows one of its times, both times in a fold, and not for what a gap leaves
    out. Else it is a job at fixed times, and ticks once for each of them: at the first instant at which the clock shows
    that time or a later one, which is the end of the gap in a gap and the first of the two in a fold. Ticks that come
    to the same instant are one tick.

    Raises `InvalidScheduleError`, which names the field and shows the expression with a caret, also for an expression
    that names no day of any year. Time zone data is read at construction, and never again.
    """

    _text: str = field(init=False)
    _timezone: str = field(init=False)
    _fields: tuple[Field, Field, Field, Field, Field] = field(init=False, compare=False)
    _calendar: CronCalendar = field(init=False, compare=False)
    _clock: LocalClock = field(init=False, compare=False)

    kind: ClassVar[str] = "cron"

    def __init__(self, expression: str, *, timezone: str = "UTC") -> None:
        fields = parse(expression)
        calendar = calendar_of(fields)
        if calendar is None:
            raise _never(expression)
        clock = clock_of(timezone)
        # The dataclass is frozen: its own __setattr__ refuses.
        put = object.__setattr__
        put(self, "_text", " ".join(part.text for part in fields))
        put(self, "_timezone", str.__str__(timezone))
        put(self, "_fields", fields)
        put(self, "_calendar", calendar)
        put(self, "_clock", clock)

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, timezone={self.timezone!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.text, self.timezone)

    @property
    def text(self) -> str:
        """Give the five fields in their canonical spelling: numbers in order, Sunday as 0, words as what they mean."""
        return self._text

    @property
    def timezone(self) -> str:
        """Give the IANA name of the time zone whose clocks are meant."""
        return self._timezone

    @property
    def follows_elapsed_time(self) -> bool:
        """Say whether the minute or the hour begins with `*`, which decides what happens when clocks change."""
        return self._fields[0].starred or self._fields[1].starred

    def describe(self) -> str:
        """Say the schedule in words: `at 03:00 every day (Europe/Paris)`."""
        return f"{cron_words.describe(self._fields)} ({self.timezone})"

    def _first_after(self, utc: datetime) -> datetime | None:
        if self.follows_elapsed_time:
            return self._first_shown_after(utc)
        local = self._calendar.first_after(self._clock.furthest_shown(utc))
        return None if local is None else self._clock.first_showing(local)

    def _last_until(self, utc: datetime) -> datetime | None:
        if self.follows_elapsed_time:
            return self._last_shown_until(utc)
        local = self._calendar.last_until(self._clock.furthest_shown(utc))
        return None if local is None else self._clock.first_showing(local)

    def _first_shown_after(self, utc: datetime) -> datetime | None:
        """Give the first instant strictly later at which the clock shows one of the times."""
        shown = self._clock.shown(utc)
        while local := self._calendar.first_after(shown):
            offset = shown - utc
            tick = local - offset
            if tick - utc > 2 * QUIET and self._clock.offset(utc + QUIET) == offset:
                # No fold is near that could show an earlier time again: nothing matches before that time comes near.
                utc = tick - QUIET
                shown = self._clock.shown(utc)
                continue
            end = min(tick, utc + _STRIDE)
            at_end = self._clock.shown(end)
            if at_end - end != offset:
                end = self._clock.change(utc, end)
                at_end = self._clock.shown(end)
                if self._calendar.names(at_end):
                    return end
            elif end == tick:
                return tick
            utc, shown = end, at_end
        return None

    def _last_shown_until(self, utc: datetime) -> datetime | None:
        """Give the last instant, this one or earlier, at which the clock shows one of the times."""
        shown = self._clock.shown(utc)
        while local := self._calendar.last_until(shown):
            offset = shown - utc
            tick = local - offset
            if utc - tick > 2 * QUIET and self._clock.offset(utc - QUIET) == offset:
                utc = tick + QUIET
                shown = self._clock.shown(utc)
                continue
            end = max(tick, utc - _STRIDE)
            if self._clock.offset(end) != offset:
                end = self._clock.change(end, utc) - MICROSECOND
            elif end == tick:
                return tick
            utc, shown = end, self._clock.shown(end)
        return None


def _never(expression: str) -> InvalidScheduleError:
    return pieces_of(expression)[2].refused(
        DAY, "no month that is named has such a day, in any year: the job would never run. Mend the day or the month."
    )


def _remade(text: str, timezone: str) -> Cron:
    return Cron(text, timezone=timezone)
