"""When a relay that runs for ever looks again, prunes, and says that the database is away. It takes `now`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tenure.outbox.calls import PRUNE_CHUNK
from tenure.trust import Backoff

SAY_EVERY_S = 60.0
PRUNE_EVERY_S = 60.0
FIRST_POLL_S = 0.05


@dataclass(slots=True)
class Pace:
    """Say how long to rest after each round; `keep_s` is None for a relay that never prunes."""

    poll_s: float
    keep_s: float | None
    outage: Backoff = field(default_factory=lambda: Backoff(0.1, 5.0))
    failures: int = 0
    _idle: int = 0
    _said_boot_s: float = -math.inf
    _prunes_boot_s: float = 0.0

    def after_round(self, claimed: int, spread: float) -> float:
        """Go on at once while there is work; then look less and less often, at least once a poll."""
        self.failures = 0
        if claimed:
            self._idle = 0
            return 0.0
        self._idle += 1
        return Backoff(min(FIRST_POLL_S, self.poll_s), self.poll_s).delay_s(self._idle, spread)

    def after_error(self, spread: float) -> float:
        """Wait longer after each failure in a row."""
        self.failures += 1
        return self.outage.delay_s(self.failures, spread)

    def says(self, now_boot_s: float) -> bool:
        """Say whether to log a failure now: the first one, and then once a minute."""
        if now_boot_s - self._said_boot_s < SAY_EVERY_S:
            return False
        self._said_boot_s = now_boot_s
        return True

    def prunes(self, now_boot_s: float) -> bool:
        """Say whether to prune now."""
        return self.keep_s is not None and now_boot_s >= self._prunes_boot_s

    def pruned(self, deleted: int, now_boot_s: float, spread: float) -> None:
        """Prune again in about a minute; sooner when there was more to delete than goes in one statement."""
        self._prunes_boot_s = now_boot_s + (1.0 if deleted >= PRUNE_CHUNK else PRUNE_EVERY_S * (0.5 + spread))
