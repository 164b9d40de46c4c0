"""What a node takes the database's clock for (C10.2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tenure.scheduling.database_clock import DatabaseClock

NOON = datetime(2026, 7, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
EVER = st.floats(0, 1e6)
TRIPS_S = st.floats(0, 5)
SHARES = st.floats(0, 1)
SLACK = timedelta(microseconds=10)


def true_at(boot_s: float) -> datetime:
    """Give what a database says whose clock read noon when the host began."""
    return NOON + timedelta(seconds=boot_s)


def test_it_is_unknown_before_the_first_answer_and_runs_on_after_it() -> None:
    """C10.2: on the boot clock; the middle of the round trip is taken."""
    clock = DatabaseClock()
    assert not clock.is_known
    clock.learn(NOON, 10.0, 12.0)
    assert clock.is_known
    assert clock.at(11.0) == NOON
    assert clock.at(71.0) == NOON + 60 * SECOND


@given(EVER, TRIPS_S, SHARES, EVER)
def test_one_answer_errs_by_half_its_round_trip_at_most(sent: float, trip: float, share: float, later: float) -> None:
    """C10.2: wherever between sending and receiving the clock was read."""
    clock = DatabaseClock()
    clock.learn(true_at(sent + share * trip), sent, sent + trip)
    assert abs(clock.at(later) - true_at(later)) <= timedelta(seconds=trip / 2) + SLACK


@given(st.lists(st.tuples(TRIPS_S, SHARES, st.floats(0, 60)), min_size=1, max_size=20))
def test_a_slow_answer_never_spoils_what_a_quick_one_told(answers: list[tuple[float, float, float]]) -> None:
    """C10.2: it is as good as the best answer, less what two clocks may have parted since: 0.1 ms in a second."""
    clock, now, best_s = DatabaseClock(), 0.0, 5.0
    for trip, share, pause in answers:
        clock.learn(true_at(now + share * trip), now, now + trip)
        best_s = min(best_s + 1e-4 * (trip + pause), max(trip / 2, 1e-3) + 1e-4 * (trip / 2 + pause))
        now += trip + pause
        assert abs(clock.at(now) - true_at(now)) <= timedelta(seconds=best_s) + SLACK


def test_a_tick_is_not_late_because_an_answer_waited_for_a_connection() -> None:
    """C10.2: the clock was read at the very end or beginning of a second; what was known agrees, and stays."""
    for share in (0.0, 0.001, 0.999, 1.0):
        clock = DatabaseClock()
        clock.learn(true_at(0.5), 0.499, 0.501)
        clock.learn(true_at(10.0 + share), 10.0, 11.0)
        assert abs(clock.at(11.0) - true_at(11.0)) < timedelta(milliseconds=1)


@given(st.floats(1, 1e5), st.booleans(), TRIPS_S, SHARES)
def test_a_clock_that_was_set_is_believed_at_once(by: float, ahead: bool, trip: float, share: float) -> None:
    """C10.2: forwards or back, as after a failover to a server whose clock differs."""
    clock = DatabaseClock()
    clock.learn(true_at(0.0), 0.0, 0.0)
    shift = timedelta(seconds=by + trip if ahead else -by - trip)
    clock.learn(true_at(100.0 + share * trip) + shift, 100.0, 100.0 + trip)
    assert abs(clock.at(200.0) - true_at(200.0) - shift) <= timedelta(seconds=trip / 2) + SLACK
