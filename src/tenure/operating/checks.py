"""Refuse what cannot be stored or asked for, before any SQL (C11)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from tenure.errors import InvalidJobOptionsError
from tenure.identity import shown, storable_text

_BY_LIMIT: Final = 256
_REASON_LIMIT: Final = 4_096


def check_action(by: object, reason: object) -> None:
    """Refuse who and why that cannot be kept."""
    _check_length("by", storable_text("by", by), 1, _BY_LIMIT)
    if reason is not None:
        _check_length("reason", storable_text("reason", reason), 0, _REASON_LIMIT)


def check_limit(limit: object, most: int) -> None:
    """Refuse a number of rows that is none, or too large."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= most:
        raise InvalidJobOptionsError(f"limit must be an int of 1 to {most:,}; {shown(limit)} was given.")


def check_instant(name: str, value: object) -> None:
    """Refuse what is no aware datetime; nothing at all is fine."""
    if value is None:
        return
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidJobOptionsError(
            f"{name} must be an aware datetime; {shown(value)} was given. If it is UTC, give it with "
            ".replace(tzinfo=UTC)."
        )


def _check_length(name: str, text: str, least: int, most: int) -> None:
    if not least <= len(text) <= most:
        raise InvalidJobOptionsError(f"{name} must hold {least} to {most:,} characters; this one has {len(text):,}.")
