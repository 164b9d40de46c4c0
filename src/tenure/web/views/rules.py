"""The rules of a job, as its registration wrote them down for people; another release may have written others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from tenure.scheduling.values import JobRecord
from tenure.web.views.words import took

_LONGEST_MS: Final = 10**13
_CAUGHT_UP: Final = {"skip": "are skipped", "latest": "the latest is caught up", "all": "are caught up, oldest first"}
_OVERLAPPING: Final = {"skip": "does not run", "queue": "waits for the other's end", "allow": "runs beside the other"}


def rules_of(job: JobRecord | None) -> list[tuple[str, str]]:
    """Say the rules, those that are known, in the order in which one asks for them."""
    policy = (job.policy or {}) if job else {}
    return [(name, words(policy[key])) for key, name, words in _RULES if policy.get(key, 0) != 0]


def _length(none: str) -> Callable[[Any], str]:
    def words(value: Any) -> str:
        if isinstance(value, int) and 0 <= value < _LONGEST_MS:
            return took(timedelta(milliseconds=value))
        return none if value is None else str(value)

    return words


def _choice(choices: dict[str, str]) -> Callable[[Any], str]:
    return lambda value: choices.get(str(value), str(value))


_RULES: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("lease_ms", "Lease", _length("none")),
    ("max_attempts", "Attempts", str),
    ("timeout_ms", "Time-out", _length("none")),
    ("catch_up", "Missed ticks", _choice(_CAUGHT_UP)),
    ("max_lateness_ms", "Too late after", _length("never")),
    ("overlap", "While another runs, a tick", _choice(_OVERLAPPING)),
    ("jitter_ms", "Begins late by up to", _length("none")),
)
