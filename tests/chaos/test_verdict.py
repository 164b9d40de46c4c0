"""The verdict of a chaos run can fail: a history is made up, then doctored, one rule at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.plan import Plan
from tests.chaos.tables import Change, Effect, Run
from tests.chaos.verdict import Evidence, judge, takeovers

Doctor = Callable[[Evidence], Evidence]


def sound() -> Evidence:
    """Give two ticks: one that went well at once, one whose first holder died after its effect."""
    return Evidence(
        run_keys=["a", "b"],
        runs=[Run("a", "SUCCESS", 1, 1), Run("b", "SUCCESS", 2, 3)],
        changes=[
            Change("a", "RUNNING", 1, 1, "t1"),
            Change("b", "RUNNING", 1, 2, "t2"),
            Change("a", "SUCCESS", 1, 1, "t1", "RUNNING", 300.0, 1_200),
            Change("b", "RUNNING", 2, 3, "t3", "RUNNING", 1_200.5, 1_200),
            Change("b", "SUCCESS", 2, 3, "t3", "RUNNING", 300.0, 1_200),
        ],
        effects=[Effect("a", 1, 1, "n1"), Effect("b", 1, 2, "n2"), Effect("b", 2, 3, "n1")],
        log_lines=["FATAL:  terminating connection due to administrator command"],
        faults={"killed": 1},
    )


def test_a_sound_history_passes_every_check() -> None:
    verdict = judge(sound())
    assert verdict.ok
    assert str(verdict) == "6 passed, 0 failed"
    assert takeovers(sound().changes) == 1


def change(number: int, **fields: object) -> Doctor:
    def doctor(evidence: Evidence) -> Evidence:
        changes = list(evidence.changes)
        changes[number] = replace(changes[number], **fields)  # type: ignore[arg-type]
        return replace(evidence, changes=changes)

    return doctor


def without_change(number: int) -> Doctor:
    return lambda evidence: replace(evidence, changes=[c for n, c in enumerate(evidence.changes) if n != number])


def with_effects(*effects: Effect) -> Doctor:
    return lambda evidence: replace(evidence, effects=effects)


def with_runs(*runs: Run) -> Doctor:
    return lambda evidence: replace(evidence, runs=runs)


A, B = sound().runs
EFFECTS = sound().effects

DOCTORED: dict[str, tuple[Doctor, str]] = {
    "a tick was lost": (with_runs(A), "b has no single SUCCESS row"),
    "a tick was doubled": (with_runs(A, A, B), "a has no single SUCCESS row"),
    "a tick is unfinished": (with_runs(replace(A, status="RUNNING"), B), "a has no single SUCCESS row"),
    "a row is foreign": (with_runs(A, B, Run("c", "SUCCESS", 1, 9)), "nobody asked for"),
    "an attempt was skipped": (with_runs(A, replace(B, attempt=3)), "do not count up by one"),
    "a lease left no trace": (without_change(1), "do not count up by one"),
    "a fencing token fell": (change(3, fencing_token=1), "tokens do not grow"),
    "a fencing token stood still": (change(3, fencing_token=2), "tokens do not grow"),
    "a fencing token was given twice": (change(1, fencing_token=1), "given twice: [1]"),
    "an owner token was given twice": (change(3, owner_token="t2"), "same owner token"),
    "a run succeeded twice": (change(3, status="SUCCESS", attempt=1), "do not count up"),
    "a run went on after its success": (without_change(4), "SUCCESS is not its one end"),
    "a live lease was taken": (change(3, age_ms_before=1_199.0), "took a live lease"),
    "a former owner's effect was accepted": (
        with_effects(EFFECTS[0], EFFECTS[2], EFFECTS[1]),
        "after one with a larger fencing token",
    ),
    "a lease had two effects": (with_effects(*EFFECTS, EFFECTS[2]), "two effects"),
    "an effect came from nowhere": (with_effects(*EFFECTS[:2], replace(EFFECTS[2], attempt=7)), "never was"),
    "a success had no effect": (with_effects(*EFFECTS[:2]), "SUCCESS bears token 3"),
    "the server logged an error": (
        lambda evidence: replace(evidence, log_lines=["ERROR:  duplicate key value"]),
        "no fault provoked",
    ),
    "a fault was never made": (lambda evidence: replace(evidence, faults={"killed": 0}), "never made: ['killed']"),
}


@pytest.mark.parametrize("name", DOCTORED)
def test_a_doctored_history_fails(name: str) -> None:
    doctor, problem = DOCTORED[name]
    verdict = judge(doctor(sound()))
    assert not verdict.ok
    assert any(problem in told for told in verdict.problems), verdict.problems


def test_the_seed_of_a_plan_survives_the_command_line() -> None:
    plan = Plan.quick(7)
    assert Plan.from_text(plan.to_text()) == plan
    assert plan.ticks == 80
