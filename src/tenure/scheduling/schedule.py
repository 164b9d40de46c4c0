"""What every schedule can say: which tick an instant belongs to, and which ticks come before and after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from hashlib import sha256
from typing import ClassVar, Final

from tenure import identity
from tenure.errors import InvalidScheduleError
from tenure.scheduling.instants import EARLY_TOLERANCE, LATEST, MICROSECOND, aware_utc, naive_utc

_MOST_EARLY: Final = timedelta(minutes=1)


class Schedule(ABC):
    """Say when a job is due, as a pure function of the schedule, its time zone and an instant (C10.1).

    A schedule is a frozen value: it can be hashed, compared and pickled, and reads no clock. Instants are aware
    datetimes of any zone; ticks are aware datetimes in UTC, strictly increasing. A tick lies between 8 January of the
    year 1 and 24 December of the year 9999; where there is none any more, the answer is None.

    Every method raises `InvalidScheduleError` (also a `ValueError`) for a naive datetime and for anything else that
    is not an instant.
    """

    __slots__ = ()

    kind: ClassVar[str]

    @property
    @abstractmethod
    def text(self) -> str:
        """Give the schedule in its canonical spelling; two spellings of one schedule have the same."""

    @property
    @abstractmethod
    def timezone(self) -> str:
        """Give the IANA name of the time zone in which the text is read."""

    @abstractmethod
    def describe(self) -> str:
        """Say the schedule in words, in English, with its time zone."""

    @property
    def fingerprint(self) -> str:
        """Give 16 hexadecimal digits, the same on every node for the same kind, text and time zone."""
        return sha256(f"{self.kind}\n{self.text}\n{self.timezone}".encode()).hexdigest()[:16]

    def tick_at(self, instant: datetime, early: timedelta = EARLY_TOLERANCE) -> datetime | None:
        """Give the tick that an instant belongs to: the latest one that is not later than `instant + early` (C10.2).

        So a job that fires up to `early` (0 to 1 minute) before its tick, on time, or late, names the same tick.
        None if there never was a tick.
        """
        return aware_utc(self._last_until(min(naive_utc(instant, _checked_early(early)), LATEST)))

    def next_after(self, instant: datetime) -> datetime | None:
        """Give the first tick that is strictly later than the instant (C10.3); None at the end of the calendar."""
        return aware_utc(self._first_after(naive_utc(instant)))

    def previous(self, instant: datetime) -> datetime | None:
        """Give the last tick that is strictly earlier than the instant; None if there never was one."""
        return aware_utc(self._last_until(naive_utc(instant) - MICROSECOND))

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """Give the ticks later than `after` and not later than `until`, oldest first, at most `limit` of them.

        The oldest are kept when there are more. Empty if `until` is not later than `after`.
        """
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise InvalidScheduleError(f"limit must be an int of at least 0; {identity.shown(limit)} was given.")
        ticks: list[datetime] = []
        end, tick = naive_utc(until), self._first_after(naive_utc(after))
        while len(ticks) < limit and tick is not None and tick <= end and (aware := aware_utc(tick)):
            ticks.append(aware)
            tick = self._first_after(tick)
        return ticks

    @abstractmethod
    def _first_after(self, utc: datetime) -> datetime | None:
        """Give the first tick strictly after an instant; both are naive UTC. It may be out of bounds."""

    @abstractmethod
    def _last_until(self, utc: datetime) -> datetime | None:
        """Give the last tick at an instant or before it; both are naive UTC. It may be out of bounds."""


def _checked_early(value: object) -> timedelta:
    if not isinstance(value, timedelta) or not timedelta(0) <= value <= _MOST_EARLY:
        given = str(value) if isinstance(value, timedelta) else identity.shown(value)
        raise InvalidScheduleError(f"early must be a timedelta of 0 to 1 minute; {given} was given.")
    return value
