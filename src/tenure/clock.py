"""The clock of this process for everything local: it also runs while the host is suspended (C3.6)."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def boot_s() -> float:
        """Give seconds since boot, suspension included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def boot_s() -> float:
        """Give seconds on the platform's monotonic clock, the best that it has."""
        return time.monotonic()
