"""What a process has for itself: a clock that also runs while the host is suspended (C3.6), and chance."""

from __future__ import annotations

import time
from random import SystemRandom

if hasattr(time, "CLOCK_BOOTTIME"):

    def boot_s() -> float:
        """Give seconds since boot, suspension included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def boot_s() -> float:
        """Give seconds on the platform's monotonic clock, the best that it has."""
        return time.monotonic()


spread = SystemRandom().random
"""Give a number in [0, 1) to spread pauses with; it neither uses nor moves the application's own generator."""
