"""Time as values: how long a lease may be trusted, and how long to wait between attempts.

Nothing here reads a clock. Instants are seconds on the boot clock of this process, which also runs while the host is
suspended; authority over a lease is the database's alone, and what is computed here is only ever a reason to stop.
"""

from __future__ import annotations

from dataclasses import dataclass

MARGIN_SHARE = 0.05
MARGIN_CAP_S = 1.0


@dataclass(frozen=True, slots=True)
class TrustWindow:
    """Say until when a holder may believe in its lease without asking (C3.6).

    The window opens when the last successful renewal was *sent*: the database stamps the row later than that, so the
    holder always stops before a rival may start.
    """

    lease_s: float
    sent_boot_s: float

    @property
    def deadline_boot_s(self) -> float:
        """Give the instant from which the lease counts as lost."""
        return self.sent_boot_s + self.lease_s - min(self.lease_s * MARGIN_SHARE, MARGIN_CAP_S)

    def remaining_s(self, now_boot_s: float) -> float:
        """Give what is left of the window; zero or less means that it is over."""
        return self.deadline_boot_s - now_boot_s

    def is_over(self, now_boot_s: float) -> bool:
        """Say whether the deadline has been reached."""
        return now_boot_s >= self.deadline_boot_s

    def renewed(self, sent_boot_s: float) -> TrustWindow:
        """Give the window after a renewal sent at that instant; an older one changes nothing."""
        return TrustWindow(self.lease_s, max(self.sent_boot_s, sent_boot_s))


@dataclass(frozen=True, slots=True)
class Backoff:
    """Give the pause before the next attempt: doubling, capped, and spread so that nodes do not march in step."""

    first_s: float = 0.05
    cap_s: float = 2.0

    def delay_s(self, failures: int, spread: float) -> float:
        """Give the pause after that many failures in a row (at least 1); `spread` is a random number in [0, 1)."""
        full_s = min(self.cap_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return full_s * (0.5 + spread / 2)
