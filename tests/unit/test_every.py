"""Periods anchored to the epoch, and what all schedules have in common (C10.1, C10.2, C10.3)."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.durations import parse_duration
from tenure.errors import InvalidScheduleError
from tenure.scheduling import EARLY_TOLERANCE, Cron, Every, Schedule, run_key

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TICK = datetime(2026, 7, 20, 3, tzinfo=UTC)
MS = timedelta(milliseconds=1)
US = timedelta(microseconds=1)
PERIODS = st.integers(1_000, 366 * 86_400_000).map(lambda ms: ms * MS)
INSTANTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC))
SCHEDULES: list[Schedule] = [
    Every(timedelta(minutes=5)),
    Cron("*/5 * * * *", timezone="Asia/Ho_Chi_Minh"),
    Cron("0 3 * * *"),
]
ids = [repr(schedule) for schedule in SCHEDULES]


@given(PERIODS, INSTANTS)
def test_ticks_are_the_multiples_of_the_period_since_the_epoch(period: timedelta, instant: datetime) -> None:
    """C10.3: also before 1970."""
    schedule = Every(period)
    at, later, earlier = schedule.tick_at(instant, 0 * MS), schedule.next_after(instant), schedule.previous(instant)
    assert at
    assert later
    assert earlier
    assert not (at - EPOCH) % period
    assert earlier < instant < later
    assert at <= instant
    assert later - at == period
    assert earlier == (at if at < instant else at - period)


@given(PERIODS)
def test_the_text_of_a_period_is_a_duration(period: timedelta) -> None:
    """C1.1, C10.1: nothing is rounded away."""
    assert parse_duration(Every(period).text) == period


@pytest.mark.parametrize(
    ("period", "text", "words"),
    [
        (timedelta(seconds=1), "1s", "every second"),
        (timedelta(minutes=5), "5m", "every 5 minutes"),
        (timedelta(hours=1), "1h", "every hour"),
        (timedelta(seconds=5_400), "1h30m", "every 1 hour 30 minutes"),
        (timedelta(days=366), "366d", "every 366 days"),
        (timedelta(seconds=1, milliseconds=500), "1s500ms", "every 1 second 500 milliseconds"),
    ],
)
def test_words(period: timedelta, text: str, words: str) -> None:
    schedule = Every(period)
    assert (schedule.text, schedule.describe(), schedule.timezone) == (text, words, "UTC")


@pytest.mark.parametrize(
    "period",
    [
        timedelta(0),
        999 * MS,
        -timedelta(minutes=5),
        timedelta(days=366) + MS,
        timedelta(seconds=1) + US,
        300,
        "5m",
        None,
    ],
)
def test_other_periods_are_refused(period: Any) -> None:
    """C11: the limit, and what was given."""
    with pytest.raises(InvalidScheduleError, match=r"^period must be"):
        Every(period)


def test_it_is_a_value() -> None:
    """C10.1."""
    made = Every(timedelta(minutes=5))
    assert pickle.loads(pickle.dumps(made)) == made == Every(timedelta(seconds=300))
    assert len({made, Every(timedelta(seconds=300))}) == 1
    assert made.fingerprint == Every(timedelta(seconds=300)).fingerprint != Every(timedelta(seconds=301)).fingerprint
    with pytest.raises(AttributeError):
        made.period = timedelta(1)  # type: ignore[misc]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=ids)
def test_early_on_time_and_late_are_the_same_tick(schedule: Schedule) -> None:
    """C10.2: 250 ms early, to the microsecond; then it is still the tick before."""
    assert timedelta(milliseconds=250) == EARLY_TOLERANCE
    before = schedule.previous(TICK)
    for late in (-250 * MS, -100 * MS, -US, 0 * MS, US, timedelta(minutes=4)):
        assert schedule.tick_at(TICK + late) == TICK
    assert schedule.tick_at(TICK - 250 * MS - US) == before
    assert schedule.tick_at(TICK - MS, timedelta(0)) == before
    assert schedule.tick_at(TICK - timedelta(seconds=2), timedelta(seconds=2)) == TICK


@pytest.mark.parametrize("schedule", SCHEDULES, ids=ids)
def test_any_zone_may_be_given_and_utc_comes_back(schedule: Schedule) -> None:
    """C10.1."""
    for zone in (ZoneInfo("America/New_York"), timezone(timedelta(hours=5, minutes=45))):
        for answer in (schedule.next_after, schedule.previous, schedule.tick_at):
            assert answer(TICK.astimezone(zone)) == answer(TICK)
            tick = answer(TICK.astimezone(zone))
            assert tick
            assert tick.tzinfo is UTC


class Untold(tzinfo):
    """Be a zone that does not tell its offset: a datetime in it is naive."""

    def utcoffset(self, dt: datetime | None) -> None:
        return None

    dst = utcoffset
    tzname = utcoffset


NO_INSTANTS: list[Any] = [datetime(2026, 7, 20), date(2026, 7, 20), None, 0, 1.5, "2026-07-20T03:00:00Z"]
NO_INSTANTS += [datetime(2026, 7, 20, tzinfo=Untold())]


@pytest.mark.parametrize("instant", NO_INSTANTS, ids=lambda instant: f"{type(instant).__name__} {str(instant)[:10]}")
def test_what_is_no_aware_datetime_is_refused(instant: Any) -> None:
    """C11: a naive datetime is nobody's instant."""
    schedule = SCHEDULES[0]
    for ask in (
        schedule.next_after,
        schedule.previous,
        schedule.tick_at,
        lambda at: schedule.between(at, TICK, 1),
        run_key,
    ):
        with pytest.raises(InvalidScheduleError, match="must be an aware datetime"):
            ask(instant)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=ids)
def test_between_leaves_the_first_bound_out_and_takes_the_second(schedule: Schedule) -> None:
    """C10.5: what was missed, oldest first, capped."""
    second = schedule.next_after(TICK)
    assert second
    assert schedule.between(TICK, second, 10) == [second]
    assert schedule.between(TICK - US, second, 10) == [TICK, second]
    assert schedule.between(TICK - US, second, 1) == [TICK]
    assert schedule.between(TICK - US, second - US, 10) == [TICK]
    assert (
        schedule.between(TICK, TICK, 10)
        == schedule.between(second, TICK, 10)
        == schedule.between(TICK, second, 0)
        == []
    )
    capped = schedule.between(TICK, TICK + timedelta(days=9_999), 7)
    assert len(capped) == 7
    assert capped == sorted(set(capped))


@pytest.mark.parametrize("limit", [-1, True, 1.0, None])
def test_a_limit_is_a_whole_number(limit: Any) -> None:
    with pytest.raises(InvalidScheduleError, match="limit must be an int"):
        SCHEDULES[0].between(TICK, TICK, limit)


@pytest.mark.parametrize("early", [-US, timedelta(seconds=61), 250, None])
def test_a_tolerance_is_a_short_time(early: Any) -> None:
    with pytest.raises(InvalidScheduleError, match="early must be a timedelta of 0 to 1 minute"):
        SCHEDULES[0].tick_at(TICK, early)


@pytest.mark.parametrize("schedule", [*SCHEDULES, Every(timedelta(days=366))], ids=repr)
def test_the_ends_of_the_calendar(schedule: Schedule) -> None:
    """No crash; where there are no ticks any more, None."""
    for zone in (UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))):
        first, last = datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
        assert schedule.previous(first) is schedule.tick_at(first) is schedule.next_after(last) is None
        assert (schedule.next_after(first) or last) < (schedule.previous(last) or first)
        assert schedule.between(last - timedelta(minutes=1), last, 5) == []


@pytest.mark.parametrize(
    ("tick", "key"),
    [
        (TICK, "2026-07-20T03:00:00.000Z"),
        (TICK.astimezone(ZoneInfo("Asia/Ho_Chi_Minh")), "2026-07-20T03:00:00.000Z"),
        (TICK + 5 * MS, "2026-07-20T03:00:00.005Z"),
        (TICK + 999_999 * US, "2026-07-20T03:00:00.999Z"),
        (datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "1969-12-31T23:59:59.999Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "9999-12-31T23:59:59.999Z"),
    ],
)
def test_the_run_key_is_what_to_iso_string_prints(tick: datetime, key: str) -> None:
    """C10.1: a NestJS node computes the same."""
    assert run_key(tick) == key


def test_a_run_key_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(InvalidScheduleError, match="years 1 to 9999"):
        run_key(datetime.min.replace(tzinfo=timezone(timedelta(hours=1))))
