"""Judge a run by the database alone: rows in, problems out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.tables import Change, Effect, Run

# What the director's own faults make the server say. No ERROR is among them, only ends of connections.
_PROVOKED = re.compile(
    r"FATAL: {2}(?:terminating connection due to (?:administrator command|unexpected postmaster exit)"
    r"|terminating connection because of crash of another server process"
    r"|the database system is (?:starting up|shutting down|in recovery mode|not yet accepting connections)"
    r"|connection to client lost)"
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold all that the verdict stands on."""

    run_keys: Sequence[str]
    runs: Sequence[Run]
    changes: Sequence[Change]
    effects: Sequence[Effect]
    log_lines: Sequence[str] = ()
    faults: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold how many checks passed, and what is wrong with the others."""

    passed: int
    problems: Sequence[str]

    @property
    def ok(self) -> bool:
        """Say whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        return f"{self.passed} passed, {len(self.problems)} failed"


def judge(evidence: Evidence) -> Verdict:
    """Check each tick, and what holds for all of them together; the first problem of each is told."""
    found = [next(_tick_problems(run_key, evidence), None) for run_key in evidence.run_keys]
    found += [_foreign(evidence), _shared_tokens(evidence), _complaints(evidence), _spared(evidence)]
    problems = [problem for problem in found if problem is not None]
    return Verdict(len(found) - len(problems), problems)


def takeovers(changes: Sequence[Change]) -> int:
    """Count the leases that ended without a word and were taken over."""
    return sum(_is_takeover(change) for change in changes)


def _tick_problems(run_key: str, evidence: Evidence) -> Iterator[str]:
    rows = [run for run in evidence.runs if run.run_key == run_key]
    history = [change for change in evidence.changes if change.run_key == run_key]
    effects = [effect for effect in evidence.effects if effect.run_key == run_key]
    if len(rows) != 1 or rows[0].status != "SUCCESS":
        yield f"{run_key} has no single SUCCESS row: {[row.status for row in rows]}"
        return
    yield from _history_problems(rows[0], history)
    yield from _effect_problems(rows[0], history, effects)


def _history_problems(row: Run, history: Sequence[Change]) -> Iterator[str]:
    leases = [change for change in history if change.status == "RUNNING"]
    attempts = [lease.attempt for lease in leases]
    if attempts != list(range(1, row.attempt + 1)):
        yield f"{row.run_key}: attempts do not count up by one to {row.attempt}: {attempts}"
    if any(later.fencing_token <= earlier.fencing_token for earlier, later in pairwise(leases)):
        yield f"{row.run_key}: fencing tokens do not grow: {[lease.fencing_token for lease in leases]}"
    if len({lease.owner_token for lease in leases}) != len(leases):
        yield f"{row.run_key}: two leases bear the same owner token"
    if [change.status for change in history].count("SUCCESS") != 1 or history[-1].status != "SUCCESS":
        yield f"{row.run_key}: SUCCESS is not its one end: {[change.status for change in history]}"
    for change in history:
        if _is_takeover(change) and (change.age_ms_before or 0.0) <= (change.lease_ms_before or 0):
            yield f"{row.run_key}: attempt {change.attempt} took a live lease, {change.age_ms_before} ms old"


def _effect_problems(row: Run, history: Sequence[Change], effects: Sequence[Effect]) -> Iterator[str]:
    tokens = [effect.fencing_token for effect in effects]
    leases = {(change.attempt, change.fencing_token) for change in history if change.status == "RUNNING"}
    if any(later < earlier for earlier, later in pairwise(tokens)):
        yield f"{row.run_key}: an effect was accepted after one with a larger fencing token: {tokens}"
    if len(set(tokens)) != len(tokens):
        yield f"{row.run_key}: one lease had two effects: {tokens}"
    if any((effect.attempt, effect.fencing_token) not in leases for effect in effects):
        yield f"{row.run_key}: an effect was made under a lease that never was"
    if not tokens or tokens[-1] != row.fencing_token:
        yield f"{row.run_key}: SUCCESS bears token {row.fencing_token}, its effects {tokens}"


def _is_takeover(change: Change) -> bool:
    return (change.status_before, change.status) == ("RUNNING", "RUNNING")


def _foreign(evidence: Evidence) -> str | None:
    known = set(evidence.run_keys)
    foreign = [run.run_key for run in evidence.runs if run.run_key not in known]
    return f"there are rows that nobody asked for: {foreign}" if foreign else None


def _shared_tokens(evidence: Evidence) -> str | None:
    leases = {(change.run_key, change.attempt, change.fencing_token) for change in evidence.changes}
    counts = Counter(token for _, _, token in leases)
    shared = sorted(token for token, times in counts.items() if times > 1)
    return f"fencing tokens were given twice: {shared}" if shared else None


def _complaints(evidence: Evidence) -> str | None:
    lines = [line for line in evidence.log_lines if not _PROVOKED.search(line)]
    return f"the server logged what no fault provoked: {lines}" if lines else None


def _spared(evidence: Evidence) -> str | None:
    spared = sorted(kind for kind, times in evidence.faults.items() if not times)
    return f"faults that were never made: {spared}" if spared else None
