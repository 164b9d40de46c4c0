"""Processes whose wall clock is off, by what Debian's `faketime` preloads."""

from __future__ import annotations

from pathlib import Path

import pytest

# The program itself would stand between a signal and the process.
_LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)

needs_wrong_clocks = pytest.mark.skipif(_LIBRARY is None, reason="needs libfaketime (Debian: faketime)")


def clock_off_by(offset: str, *, monotonic: bool = False) -> dict[str, str]:
    """Give the environment for a wall clock that is off, by `-1d` say; the monotonic clock stays the machine's.

    Then, libfaketime 0.9.10 breaks `time.sleep`. With `monotonic` that clock is off, too, and only an offset to the
    future works.
    """
    fake = "0" if monotonic else "1"
    return {"LD_PRELOAD": str(_LIBRARY), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": fake}
