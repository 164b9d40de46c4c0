"""Judge the demo by what stands in the database at its end: rows in, verdict out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tenure import JobSchedulerService, JobSchedulerStatus, RunRecord
from tenure.demo.tables import CODE, Event, EventKind, Tables, Tick

_FAULTS = (EventKind.KILLED, EventKind.STOPPED)


@dataclass(frozen=True, slots=True)
class Load:
    """Hold one row of totals: one load of a tick that was committed."""

    run_key: str
    node: str
    orders: int
    amounts: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Counted:
    """Hold what the order rows of a tick come to when they are counted again."""

    rows: int
    distinct: int
    amounts: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold all that the verdict stands on."""

    ticks: Sequence[Tick]
    runs: Mapping[str, RunRecord]
    loads: Sequence[Load]
    counted: Mapping[str, Counted]
    events: Sequence[Event]


class Outcome(StrEnum):
    """Say what became of a tick."""

    ONCE = "once"
    LOST = "lost"
    DOUBLED = "doubled"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class TickVerdict:
    """Say what became of one tick, and who won it in the end."""

    tick: int
    run_key: str
    winner: str | None
    attempt: int
    loads: int
    orders: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Takeover:
    """Say that a run went from one node to another, why, and how long that took."""

    tick: int
    run_key: str
    cause: str
    from_node: str | None
    to_node: str
    attempt: int
    seconds: float | None
    """From the kill or the stop until another node had the run; `None` if neither was the cause."""


@dataclass(frozen=True, slots=True)
class RefusedWrite:
    """Say which write of a former owner was refused, and why."""

    node: str
    tick: int
    operation: str
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say whether every tick happened once, and what the faults came to."""

    runs: Sequence[TickVerdict]
    winners: Mapping[str, int]
    doubles: int
    lost: int
    double_orders: int
    takeovers: Sequence[Takeover]
    refused_writes: Sequence[RefusedWrite]
    accepted_writes: int
    problems: Sequence[str]

    @property
    def ok(self) -> bool:
        """Say whether nothing was doubled or lost, and both faults were survived."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """Give everything in it, as JSON has it."""
        return {"ok": self.ok, **asdict(self)}


def gather(tables: Tables, service: JobSchedulerService) -> Evidence:
    """Read all that the verdict stands on."""
    ticks = tables.ticks()
    loads = tables.rows("SELECT run_key, node, orders, amounts FROM {schema}.totals ORDER BY fencing_token, loaded_at")
    return Evidence(
        ticks=ticks,
        runs={run.run_key: run for run in service.list_runs(code=CODE, limit=len(ticks) + 1) if run.run_key},
        loads=[Load(key, node, orders, _decimals(amounts)) for key, node, orders, amounts in loads],
        counted=_count(tables),
        events=tables.events(),
    )


def judge(evidence: Evidence) -> Verdict:
    """Judge; nothing but the evidence decides."""
    runs = [_judge_tick(tick, evidence) for tick in evidence.ticks]
    takeovers = _takeovers(evidence)
    refused = _refused(evidence)
    accepted = sum(event.kind is EventKind.ACCEPTED for event in evidence.events)
    return Verdict(
        runs=runs,
        winners=_winners(runs),
        doubles=sum(run.outcome is Outcome.DOUBLED for run in runs),
        lost=sum(run.outcome is Outcome.LOST for run in runs),
        double_orders=sum(counted.rows - counted.distinct for counted in evidence.counted.values()),
        takeovers=takeovers,
        refused_writes=refused,
        accepted_writes=accepted,
        problems=[
            *_tick_problems(runs),
            *_fault_problems(evidence, takeovers, refused),
            *([f"{accepted} write(s) under a lease of the past went through."] if accepted else []),
        ],
    )


def _winners(runs: Sequence[TickVerdict]) -> dict[str, int]:
    counted = Counter(run.winner for run in runs if run.winner)
    return dict(sorted(counted.items(), key=lambda entry: (len(entry[0]), entry[0])))


def _judge_tick(tick: Tick, evidence: Evidence) -> TickVerdict:
    run = evidence.runs.get(tick.run_key)
    loads = [load for load in evidence.loads if load.run_key == tick.run_key]
    counted = evidence.counted.get(tick.run_key, Counted(0, 0, {}))
    return TickVerdict(
        tick=tick.number,
        run_key=tick.run_key,
        winner=run.holder if run else None,
        attempt=run.attempt if run else 0,
        loads=len(loads),
        orders=counted.rows,
        outcome=_outcome(run, loads, counted),
    )


def _outcome(run: RunRecord | None, loads: Sequence[Load], counted: Counted) -> Outcome:
    if len(loads) > 1 or counted.rows > counted.distinct:
        return Outcome.DOUBLED
    if not loads or run is None or run.status is not JobSchedulerStatus.SUCCESS:
        return Outcome.LOST
    whole = counted.distinct == loads[0].orders and counted.amounts == loads[0].amounts
    return Outcome.ONCE if whole else Outcome.INCOMPLETE


def _takeovers(evidence: Evidence) -> list[Takeover]:
    """Give each lease after the first of a run, with the fault that ended the one before."""
    numbers = {tick.run_key: tick.number for tick in evidence.ticks}
    won = {(e.run_key, e.attempt): e for e in evidence.events if e.kind is EventKind.WON}
    faults = {(e.run_key, e.attempt): e for e in evidence.events if e.kind in _FAULTS}
    found: list[Takeover] = []
    for (run_key, attempt), winning in won.items():
        if run_key is None or attempt is None or attempt < 2:
            continue
        before, fault = won.get((run_key, attempt - 1)), faults.get((run_key, attempt - 1))
        found.append(
            Takeover(
                tick=numbers.get(run_key, 0),
                run_key=run_key,
                cause=fault.kind.value if fault else "lease ended",
                from_node=before.node if before else None,
                to_node=winning.node,
                attempt=attempt,
                seconds=round((winning.at - fault.at).total_seconds(), 3) if fault else None,
            )
        )
    return found


def _refused(evidence: Evidence) -> list[RefusedWrite]:
    numbers = {tick.run_key: tick.number for tick in evidence.ticks}
    found: list[RefusedWrite] = []
    for event in evidence.events:
        if event.kind is EventKind.REFUSED:
            operation, _, why = event.detail.partition(": ")
            found.append(RefusedWrite(event.node, numbers.get(event.run_key or "", 0), operation, why))
    return found


def _tick_problems(runs: Sequence[TickVerdict]) -> list[str]:
    wrong = {
        Outcome.LOST: "was lost: it has no committed load, or its run is no SUCCESS.",
        Outcome.DOUBLED: "was doubled: {loads} loads, {orders:,} order rows.",
        Outcome.INCOMPLETE: "is incomplete: its order rows do not come to its totals.",
    }
    return [
        f"Tick {run.tick} {wrong[run.outcome].format(loads=run.loads, orders=run.orders)}"
        for run in runs
        if run.outcome in wrong
    ] or ([] if runs else ["There was no tick."])


def _fault_problems(evidence: Evidence, takeovers: Sequence[Takeover], refused: Sequence[RefusedWrite]) -> list[str]:
    problems: list[str] = []
    for kind in _FAULTS:
        struck = next((event for event in evidence.events if event.kind is kind), None)
        if struck is None:
            problems.append(f"No node could be {kind.value} in mid-run. Try again with more --ticks.")
        elif not any(t.cause == kind.value and t.run_key == struck.run_key for t in takeovers):
            problems.append(f"The run of {struck.node}, which was {kind.value}, was not taken over.")
        elif kind is EventKind.STOPPED and not any(write.node == struck.node for write in refused):
            problems.append(f"{struck.node} was not seen trying to write after it woke.")
    return problems


def _count(tables: Tables) -> dict[str, Counted]:
    amounts: dict[str, dict[str, Decimal]] = {}
    for run_key, currency, amount in tables.rows(
        "SELECT run_key, currency, sum(amount) FROM {schema}.orders GROUP BY run_key, currency"
    ):
        amounts.setdefault(run_key, {})[currency] = amount
    counts = tables.rows("SELECT run_key, count(*), count(DISTINCT order_id) FROM {schema}.orders GROUP BY run_key")
    return {run_key: Counted(rows, distinct, amounts[run_key]) for run_key, rows, distinct in counts}


def _decimals(amounts: Mapping[str, str]) -> dict[str, Decimal]:
    return {currency: Decimal(amount) for currency, amount in amounts.items()}
