"""Ticks that nobody was there for: which run, and what becomes of the others (C10.5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.scheduling import Every
from tenure.scheduling.events import RunStarted, TicksMissed
from tests.support.rows import execute
from tests.support.schedulers import RARE, MakeNode, known_before, nothing, outcomes, rows
from tests.support.scheduling import JOBS, watermark_of
from tests.support.waiting import eventually

MISSED = 5
CAPPED = 3


EXPECTED = {
    "skip": ["skipped"] * 5,
    "latest": ["skipped"] * 4 + ["succeeded"],
    "all": ["skipped"] * 2 + ["succeeded"] * 3,
}


@pytest.mark.parametrize("overlap", ["allow", "skip"])
@pytest.mark.parametrize("catch_up", EXPECTED)
def test_missed_ticks_run_as_the_job_says(make_node: MakeNode, database_url: str, catch_up: str, overlap: str) -> None:
    """C10.5: none, the newest, or the newest few, oldest first; each of the others has a row that says why not."""
    missed = known_before(database_url, "j", MISSED)
    ran: list[Any] = []
    for label in ("node-a", "node-b"):
        node = make_node(label)
        node.job(
            "j",
            lambda run: ran.append((run.scheduled_at, run.is_catch_up)),
            catch_up=catch_up,
            catch_up_limit=CAPPED,
            overlap=overlap,
        )
        node.begin()
    wanted = list(zip(missed, EXPECTED[catch_up], strict=True))
    eventually(lambda: outcomes(database_url, "j") == wanted)
    assert sorted(ran) == [(tick, True) for tick, how in wanted if how == "succeeded"]
    if overlap != "allow":
        assert ran == sorted(ran), "they wait for each other, oldest first"
    assert watermark_of(database_url, "j") == missed[-1]


def test_ticks_that_are_too_late_say_so(make_node: MakeNode, database_url: str) -> None:
    """C10.5: `max_lateness` goes before catch-up; one row each, and one event for them all."""
    missed = known_before(database_url, "j", MISSED)
    limit = RARE.period * 2.5
    late = [tick for tick in missed if datetime.now(UTC) - tick > limit]
    assert 0 < len(late) < MISSED
    node = make_node()
    node.job("j", nothing, catch_up="all", max_lateness=limit)
    node.start()
    wanted = [(tick, "too late" if tick in late else "succeeded") for tick in missed]
    eventually(lambda: outcomes(database_url, "j") == wanted)
    (event,) = node.heard(TicksMissed, "j")
    assert (event.outcome, event.first, event.last, event.count) == ("too late", late[0], late[-1], len(late))
    assert [attempt for *_, attempt in rows(database_url, "j")] == [0] * len(late) + [1] * (MISSED - len(late))


def test_a_new_job_never_runs_for_the_past(make_node: MakeNode, database_url: str) -> None:
    """C10.5: whatever the rule, its first tick is one that comes after it was first registered."""
    node = make_node()
    for catch_up in EXPECTED:
        node.job(f"rare {catch_up}", nothing, catch_up=catch_up)
        node.job(f"often {catch_up}", nothing, Every(timedelta(seconds=1)), catch_up=catch_up)
    node.start()
    eventually(lambda: all(rows(database_url, f"often {catch_up}") for catch_up in EXPECTED))
    known = dict(execute(database_url, f'SELECT "code", "knownSince" FROM {JOBS}'))
    for code, since in known.items():
        assert all(tick > since for tick, *_ in rows(database_url, code))
        assert code.startswith("often") or not rows(database_url, code)
    assert not any(event.is_catch_up for event in node.heard(RunStarted))


def test_a_thousand_missed_seconds_and_more_each_have_a_row(make_node: MakeNode, database_url: str) -> None:
    """C10.5: decided in parts, by whichever of two nodes; the schedule goes on at once."""
    often = Every(timedelta(seconds=1))
    missed = known_before(database_url, "j", 2_500, often)
    for label in ("node-a", "node-b"):
        node = make_node(label)
        node.job("j", nothing, often, catch_up="latest")
        node.begin()
    eventually(lambda: watermark_of(database_url, "j") > missed[-1] + timedelta(seconds=1))
    told = outcomes(database_url, "j")
    assert [tick for tick, _ in told[: len(missed)]] == missed
    assert {how for _, how in told[: len(missed) - 1]} == {"skipped"}
