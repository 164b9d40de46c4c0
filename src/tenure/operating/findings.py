"""What the doctor finds, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Say how bad a finding is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Say what the doctor found: the subject, what was found, why it matters, and the mend where one is needed."""

    level: Level
    subject: str
    found: str
    why: str
    mend: str | None = None
