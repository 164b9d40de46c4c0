"""A zone's clock on the wall: what it shows at an instant, and when it first shows a time.

Instants are naive UTC, what the clock shows is a naive datetime. No zone of the IANA database changes its offset twice
within three days, nor by more than a day, and offsets are whole seconds: a test looks at all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from tenure import identity
from tenure.errors import InvalidScheduleError
from tenure.scheduling.instants import MICROSECOND

QUIET: Final = timedelta(days=2)
"""If the offset is the same at both ends of so short a time, it did not change within."""

_SECOND: Final = timedelta(seconds=1)
# What only this machine means by it, and zones that count leap seconds.
_UNSHARED: Final = ("localtime", "posixrules", "Factory", "right/")


@dataclass(frozen=True, slots=True)
class LocalClock:
    """Show local time at instants of UTC."""

    zone: tzinfo

    def shown(self, utc: datetime) -> datetime:
        """Give what the clock shows at an instant."""
        return self.zone.fromutc(utc.replace(tzinfo=self.zone)).replace(tzinfo=None)

    def offset(self, utc: datetime) -> timedelta:
        """Give how far the clock is ahead of UTC at an instant."""
        return self.shown(utc) - utc

    def change(self, before: datetime, after: datetime) -> datetime:
        """Give the instant of the change between two instants, less than `QUIET` apart, with different offsets."""
        offset, low = self.offset(before), before.replace(microsecond=0)
        seconds_low, seconds_high = 0, (after - low) // _SECOND
        while seconds_high - seconds_low > 1:
            middle = (seconds_low + seconds_high) // 2
            if self.offset(low + middle * _SECOND) == offset:
                seconds_low = middle
            else:
                seconds_high = middle
        return low + seconds_high * _SECOND

    def first_showing(self, local: datetime) -> datetime:
        """Give the first instant at which the clock shows this time or a later one.

        It is the first of two in a fold, and the end of the gap in a gap.
        """
        first = local - self._offset_by_local(local, fold=0)
        if self.shown(first) == local:
            return first
        return self.change(local - self._offset_by_local(local, fold=1), first)

    def furthest_shown(self, utc: datetime) -> datetime:
        """Give the latest time that the clock has shown up to an instant.

        In the second pass of a fold that is the end of the first pass, which itself was not yet shown.
        """
        local = self.shown(utc)
        if not local.fold:
            return local
        first = local - self._offset_by_local(local, fold=0)
        return self.change(first, utc) + self.offset(first) - MICROSECOND

    def _offset_by_local(self, local: datetime, *, fold: int) -> timedelta:
        offset = local.replace(tzinfo=self.zone, fold=fold).utcoffset()
        assert offset is not None
        return offset


def clock_of(timezone: object) -> LocalClock:
    """Find the clock of an IANA time zone, among the system's data or the `tzdata` package's.

    Raises `InvalidScheduleError` for what is no such name, and where there is no time zone data at all.
    """
    if not isinstance(timezone, str):
        raise InvalidScheduleError(
            f"timezone must be the IANA name of a time zone, a str; {identity.shown(timezone)} was given. "
            "Give 'Europe/Paris', say."
        )
    # UTC needs no data: most containers have none.
    zone = UTC if timezone == "UTC" else _found(timezone)
    if zone is None:
        mend = (
            "Give a name such as 'Europe/Paris'; upper and lower case matter. If it is right, the time zone data here "
            "is too old: upgrade the system's package tzdata, or: pip install --upgrade tzdata"
            if _found("Etc/UTC")
            else "This system has no time zone data. Install its package tzdata, or: pip install tzdata"
        )
        raise InvalidScheduleError(f"timezone {identity.shown(timezone)} is not known here. {mend}")
    return LocalClock(zone)


def _found(name: str) -> ZoneInfo | None:
    if name.startswith(_UNSHARED):
        return None
    try:
        return ZoneInfo(name)
    # A KeyError for an unknown name, a ValueError for a malformed one, an OSError for a directory ("America").
    except (KeyError, ValueError, OSError):
        return None
