"""What operators ask for: pause, resume, and a run by hand (C10.5, C10.6)."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from tenure.scheduling import Every, JobRun, Retry
from tenure.scheduling.events import RunStarted, TickNotRun
from tenure.scheduling.values import Verdict
from tests.support.rows import TABLE, execute
from tests.support.schedulers import RARE, SECOND, MakeNode, ask, known_before, nothing, outcomes, rows, trigger
from tests.support.waiting import eventually


def test_ticks_of_a_paused_job_say_so_and_do_not_run_afterwards(make_node: MakeNode, database_url: str) -> None:
    """C10.5: each of them has a row; after the resume only later ticks run."""
    nodes = [make_node(label) for label in ("node-a", "node-b")]
    for node in nodes:
        node.job("j", nothing, Every(SECOND), catch_up="all")
        node.start()
    eventually(lambda: ("succeeded") in [how for _, how in outcomes(database_url, "j")])
    assert ask(database_url, "pause", "j", "ops", "the shop is closed")
    eventually(lambda: [how for _, how in outcomes(database_url, "j")].count("paused") >= 2)
    assert ask(database_url, "resume", "j")
    eventually(lambda: outcomes(database_url, "j")[-1][1] == "succeeded")
    told = outcomes(database_url, "j")
    order = [how for (_, before), (_, how) in pairwise([(told[0][0], ""), *told]) if how != before]
    assert order == ["succeeded", "paused", "succeeded"], "one after the other, and none in between"
    assert all(later - earlier == SECOND for (earlier, _), (later, _) in pairwise(told)), "no tick is without a row"
    paused = {tick for tick, how in told if how == "paused"}
    assert paused == {event.scheduled_at for node in nodes for event in node.heard(TickNotRun)}
    assert {event.verdict for node in nodes for event in node.heard(TickNotRun)} == {Verdict.PAUSED}
    assert not paused & {event.scheduled_at for node in nodes for event in node.heard(RunStarted)}


def test_a_paused_job_is_not_retried_before_it_is_resumed(make_node: MakeNode, database_url: str) -> None:
    """C10.4, C10.5: what failed waits; it is not dropped."""
    (tick,) = known_before(database_url, "j", 1)

    def work(run: JobRun) -> None:
        if run.attempt == 1:
            ask(database_url, "pause", "j", "ops", None)
            raise ValueError

    node = make_node()
    node.job("j", work, retry=Retry(first=timedelta(0)))
    node.job("other", nothing, Every(SECOND))
    node.start()
    eventually(lambda: rows(database_url, "j") == [(tick, "FAIL", "failed", 1)])
    eventually(lambda: len(rows(database_url, "other")) >= 2)
    assert rows(database_url, "j") == [(tick, "FAIL", "failed", 1)]
    assert ask(database_url, "resume", "j")
    eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 2)])


def test_a_run_by_hand_is_run_once_by_whoever_has_the_job(make_node: MakeNode, database_url: str) -> None:
    """C10.6: a run of its own, marked manual; the ticks are not touched by it."""
    seen: list[JobRun] = []
    for label in ("node-a", "node-b", "node-c"):
        node = make_node(label)
        node.job("j", seen.append, RARE)
        node.start()
    keys = {trigger(database_url, "j") for _ in range(3)}
    eventually(lambda: [how for _, how in outcomes(database_url, "j")] == ["succeeded"] * 3)
    assert {key for (key,) in execute(database_url, f'SELECT "runKey" FROM {TABLE}')} == keys
    assert len(seen) == 3
    assert all(run.is_manual and run.attempt == 1 for run in seen)


def test_a_run_by_hand_for_a_tick_is_given_that_tick(make_node: MakeNode, database_url: str) -> None:
    """C10.6: with `at`, whether or not that tick has run."""
    (tick,) = known_before(database_url, "j", 1)
    seen: list[JobRun] = []
    node = make_node()
    node.job("j", seen.append)
    node.start()
    eventually(lambda: len(seen) == 1)
    trigger(database_url, "j", tick)
    eventually(lambda: len(seen) == 2)
    assert [run.scheduled_at for run in seen] == [tick, tick]
    assert [run.is_manual for run in seen] == [False, True]
    assert seen[0].idempotency_key != seen[1].idempotency_key


def test_a_run_by_hand_is_retried_like_any_other(make_node: MakeNode, database_url: str) -> None:
    """C10.4."""
    seen: list[JobRun] = []

    def work(run: JobRun) -> None:
        seen.append(run)
        if run.attempt < 3:
            raise ValueError

    node = make_node()
    node.job("j", work, retry=Retry(first=timedelta(0)))
    node.start()
    trigger(database_url, "j")
    eventually(lambda: [(how, attempt) for _, _, how, attempt in rows(database_url, "j")] == [("succeeded", 3)])
    assert [run.attempt for run in seen] == [1, 2, 3]
