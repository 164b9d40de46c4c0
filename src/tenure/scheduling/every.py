"""A fixed period, anchored to the epoch (C10.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from tenure import identity
from tenure.errors import InvalidScheduleError
from tenure.scheduling.schedule import Schedule

_EPOCH: Final = datetime(1970, 1, 1)
_SHORTEST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(days=366)
_MILLISECOND: Final = timedelta(milliseconds=1)
_UNITS: Final = (("day", "d", 86_400_000), ("hour", "h", 3_600_000), ("minute", "m", 60_000), ("second", "s", 1_000))
_ALL_UNITS: Final = (*_UNITS, ("millisecond", "ms", 1))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Every(Schedule):
    """Run once each period. Ticks are the whole multiples of it since 1970-01-01T00:00:00Z, on every node alike.

    `period` is 1 second to 366 days, in whole milliseconds. A day's period ticks at midnight UTC, a week's on
    Thursdays; for any other moment, or a time zone, use `Cron`.

    Raises `InvalidScheduleError` for any other period.
    """

    period: timedelta = field(init=False)

    kind: ClassVar[str] = "every"

    def __init__(self, period: timedelta) -> None:
        # The dataclass is frozen: its own __setattr__ refuses.
        object.__setattr__(self, "period", _checked_period(period))

    def __repr__(self) -> str:
        return f"Every({self.period!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Every, (self.period,)

    @property
    def text(self) -> str:
        """Give the period as durations are written: `1h30m`."""
        return "".join(f"{count}{unit}" for count, _, unit in self._parts())

    @property
    def timezone(self) -> str:
        """Give UTC: a period knows no other."""
        return "UTC"

    def describe(self) -> str:
        """Say the period in words: `every 1 hour 30 minutes`."""
        parts = self._parts()
        if len(parts) == 1 and parts[0][0] == 1:
            return f"every {parts[0][1]}"
        return "every " + " ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name, _ in parts)

    def _parts(self) -> list[tuple[int, str, str]]:
        left_ms = self.period // _MILLISECOND
        parts: list[tuple[int, str, str]] = []
        for name, unit, unit_ms in _ALL_UNITS:
            count, left_ms = divmod(left_ms, unit_ms)
            if count:
                parts.append((count, name, unit))
        return parts

    def _first_after(self, utc: datetime) -> datetime | None:
        return self._tick((utc - _EPOCH) // self.period + 1)

    def _last_until(self, utc: datetime) -> datetime | None:
        return self._tick((utc - _EPOCH) // self.period)

    def _tick(self, number: int) -> datetime | None:
        try:
            return _EPOCH + number * self.period
        except OverflowError:
            return None


def _checked_period(value: object) -> timedelta:
    if not isinstance(value, timedelta):
        raise InvalidScheduleError(
            f"period must be a timedelta; {identity.shown(value)} was given. Give timedelta(minutes=5), say."
        )
    if not _SHORTEST <= value <= _LONGEST or value % _MILLISECOND:
        raise InvalidScheduleError(
            f"period must be 1 second to 366 days, in whole milliseconds, which is what a run key can tell; "
            f"{value} was given. Give another, or a Cron."
        )
    return timedelta(days=value.days, seconds=value.seconds, microseconds=value.microseconds)
