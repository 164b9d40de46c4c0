"""What a node takes the database's clock for between answers: the last one, carried on by the boot clock (C10.2)."""

from __future__ import annotations

from datetime import datetime, timedelta


class DatabaseClock:
    """Estimate the database's clock. A node's wall clock has no part in it.

    An answer's clock was read between sending and receiving; the middle is taken. An estimate that is ahead costs a
    claim that is refused as early, one that is behind makes a tick late by half a round trip.
    """

    def __init__(self) -> None:
        self._known: tuple[datetime, float] | None = None

    @property
    def is_known(self) -> bool:
        """Say whether the database has been heard of."""
        return self._known is not None

    def learn(self, clock: datetime, sent_boot_s: float, received_boot_s: float) -> None:
        """Take note of the clock that an answer carried, unless it agrees with what is known.

        A slow answer says little: its clock may have been read at any moment of the wait.
        """
        if self._known is not None:
            since = self.at(received_boot_s) - clock
            if timedelta(0) <= since <= timedelta(seconds=received_boot_s - sent_boot_s):
                return
        self._known = (clock, (sent_boot_s + received_boot_s) / 2)

    def at(self, now_boot_s: float) -> datetime:
        """Give the database's clock at an instant of the boot clock."""
        assert self._known is not None, "the database was heard of first"
        clock, boot_s = self._known
        return clock + timedelta(seconds=now_boot_s - boot_s)
