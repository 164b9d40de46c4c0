"""One step of an adoption, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Hold one thing to do: what for, in a sentence, and the SQL."""

    purpose: str
    sql: str
