"""Durations as people write them: `30s`, `15m`, `1h30m`, `250ms`, `2d` (C1.1)."""

from __future__ import annotations

import re
from datetime import timedelta

from tenure.errors import InvalidJobOptionsError

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile("".join(f"(?:(?P<{unit}>[0-9]{{1,18}}){unit}(?![a-z]))?" for unit in _UNITS_MS))
_SHOWN_LIMIT = 40
_LONGEST_MS = timedelta.max // timedelta(milliseconds=1)


def parse_duration(text: str) -> timedelta:
    """Read a duration: whole numbers with the units d, h, m, s, ms, largest first; a bare `0` is zero.

    Raises `InvalidJobOptionsError` (also a `ValueError`), which says what was given and how to write it.
    """
    written = text.strip()
    match = _DURATION.fullmatch(written) if written else None
    if match is None and written != "0":
        raise InvalidJobOptionsError(
            f"{_shown(text)} is not a duration. Write whole numbers with the units d, h, m, s or ms, the largest "
            "first: 30s, 15m, 1h30m, 250ms, 2d."
        )
    parts = match.groupdict(default="0") if match else {}
    total_ms = sum(int(number) * _UNITS_MS[unit] for unit, number in parts.items())
    if total_ms > _LONGEST_MS:
        raise InvalidJobOptionsError(f"{_shown(text)} is too long a duration; the limit is 999999999d.")
    return timedelta(milliseconds=total_ms)


def format_duration(duration: timedelta) -> str:
    """Write a duration with its two largest units, as `parse_duration` reads it; the sign is left out."""
    left_ms = abs(duration) // timedelta(milliseconds=1)
    if left_ms >= _UNITS_MS["s"]:
        left_ms -= left_ms % _UNITS_MS["s"]
    parts: list[str] = []
    for unit, unit_ms in _UNITS_MS.items():
        count, rest_ms = divmod(left_ms, unit_ms)
        if count and len(parts) < 2:
            parts.append(f"{count}{unit}")
        elif parts:
            break
        left_ms = rest_ms
    return "".join(parts) or "0s"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_LIMIT else text[:_SHOWN_LIMIT] + "…")
