"""What a node takes the database's clock for between answers: the last one, carried on by the boot clock (C10.2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_DRIFT: Final = 1e-4
"""How fast two clocks may part: seconds in a second."""
_LEAST_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class _Reading:
    clock: datetime
    boot_s: float
    off_s: float
    """By how much it may be wrong: half the round trip, for the clock was read at any moment of it."""

    def at(self, boot_s: float) -> datetime:
        return self.clock + timedelta(seconds=boot_s - self.boot_s)

    def off_at_s(self, boot_s: float) -> float:
        return self.off_s + _DRIFT * abs(boot_s - self.boot_s)

    def differs_s(self, other: _Reading) -> float:
        return abs((self.at(other.boot_s) - other.clock).total_seconds())


class DatabaseClock:
    """Estimate the database's clock. A node's wall clock has no part in it.

    An answer's clock was read between sending and receiving; the middle is taken. An estimate that is ahead costs a
    claim that is refused as early, one that is behind makes a tick late by half a round trip.
    """

    def __init__(self) -> None:
        self._known: _Reading | None = None

    @property
    def is_known(self) -> bool:
        """Say whether the database has been heard of."""
        return self._known is not None

    def learn(self, clock: datetime, sent_boot_s: float, received_boot_s: float) -> None:
        """Take note of the clock that an answer carried, unless what is known is closer and agrees with it."""
        half_s = max((received_boot_s - sent_boot_s) / 2, _LEAST_S)
        told = _Reading(clock, (sent_boot_s + received_boot_s) / 2, half_s)
        if self._known is not None:
            known_off_s = self._known.off_at_s(told.boot_s)
            if known_off_s <= half_s and self._known.differs_s(told) <= known_off_s + half_s:
                return
        self._known = told

    def at(self, now_boot_s: float) -> datetime:
        """Give the database's clock at an instant of the boot clock."""
        assert self._known is not None, "the database was heard of first"
        return self._known.at(now_boot_s)
