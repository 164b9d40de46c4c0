"""C10.3: where cron jobs go wrong, one by one, and what holds for all of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tenure.scheduling import Cron
from tests.support.cron_walk import Meaning, Walk, zone_names

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
# On a busy machine it takes long to make an expression.
UNHURRIED: Any = {"deadline": None, "suppress_health_check": list(HealthCheck)}
# In 28 years each date falls on each day of the week, 29 February too.
DAYS = [date(2000, 1, 1) + timedelta(days=n) for n in range(28 * 366)]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks_on(expression: str, zone: str, start: str, end: str) -> list[str]:
    """Show local times of the ticks in a local span, each with its offset."""
    span = [datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for text in (start, end)]
    found = Cron(expression, timezone=zone).between(span[0] - MINUTE, span[1], 10_000)
    return [tick.astimezone(ZoneInfo(zone)).strftime("%d %H:%M%z") for tick in found]


TRAPS = {
    # A gap: 02:00 becomes 03:00.
    "fixed, in a gap": ("30 2 * * *", "Europe/Paris", "2026-03-29", "2026-03-30", ["29 03:00+0200"]),
    "fixed, several in a gap": ("0,30 2 * * *", "Europe/Paris", "2026-03-29", "2026-03-30", ["29 03:00+0200"]),
    "fixed, in a gap and at its end": ("0 2,3 * * *", "Europe/Paris", "2026-03-29", "2026-03-30", ["29 03:00+0200"]),
    "fixed, wide of the gap": ("30 3 * * *", "Europe/Paris", "2026-03-29", "2026-03-30", ["29 03:30+0200"]),
    "wildcard minute, in a gap": ("*/15 2 * * *", "Europe/Paris", "2026-03-29", "2026-03-30", []),
    "wildcard hour, over a gap": (
        "30 * * * *",
        "Europe/Paris",
        "2026-03-29T01:00",
        "2026-03-29T04:00",
        ["29 01:30+0100", "29 03:30+0200"],
    ),
    # A fold: 03:00 becomes 02:00.
    "fixed, in a fold": ("30 2 * * *", "Europe/Paris", "2026-10-25", "2026-10-26", ["25 02:30+0200"]),
    "fixed list, in a fold": (
        "0,30 2-3 * * *",
        "Europe/Paris",
        "2026-10-25",
        "2026-10-26",
        ["25 02:00+0200", "25 02:30+0200", "25 03:00+0100", "25 03:30+0100"],
    ),
    "wildcard minute, in a fold": (
        "*/30 2 * * *",
        "Europe/Paris",
        "2026-10-25",
        "2026-10-26",
        ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100"],
    ),
    "wildcard hour, in a fold": (
        "30 * * * *",
        "Europe/Paris",
        "2026-10-25T01:00",
        "2026-10-25T04:00",
        ["25 01:30+0200", "25 02:30+0200", "25 02:30+0100", "25 03:30+0100"],
    ),
    "stars that are spelled out are fixed times": (
        "30 0-23 * * *",
        "Europe/Paris",
        "2026-10-25T01:00",
        "2026-10-25T04:00",
        ["25 01:30+0200", "25 02:30+0200", "25 03:30+0100"],
    ),
    # Half an hour: 02:00 becomes 02:30, and 01:30.
    "Lord Howe, gap": ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", "2026-10-05", ["04 02:30+1100"]),
    "Lord Howe, fold": ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", "2026-04-06", ["05 01:45+1100"]),
    "Lord Howe, every half hour through the fold": (
        "*/30 * * * *",
        "Australia/Lord_Howe",
        "2026-04-05T01:00",
        "2026-04-05T02:30",
        ["05 01:00+1100", "05 01:30+1100", "05 01:30+1030", "05 02:00+1030", "05 02:30+1030"],
    ),
    "Lord Howe, every hour through the gap": (
        "0 * * * *",
        "Australia/Lord_Howe",
        "2026-10-04T01:00",
        "2026-10-04T04:00",
        ["04 01:00+1030", "04 03:00+1100", "04 04:00+1100"],
    ),
    # Midnight itself is skipped, or comes twice.
    "Santiago, midnight in a gap": (
        "0 0 * * *",
        "America/Santiago",
        "2026-09-06",
        "2026-09-06T23:00",
        ["06 01:00-0300"],
    ),
    "Santiago, 23:30 twice": (
        "30 23 * * *",
        "America/Santiago",
        "2026-04-04T12:00",
        "2026-04-05T12:00",
        ["04 23:30-0300"],
    ),
    "Sao Paulo, midnight in a gap": (
        "0 0 * * *",
        "America/Sao_Paulo",
        "2018-11-03T12:00",
        "2018-11-04T12:00",
        ["04 01:00-0200"],
    ),
    "Beirut, midnight in a gap on a Sunday": (
        "30 0 * * SUN",
        "Asia/Beirut",
        "2026-03-28T12:00",
        "2026-03-29T12:00",
        ["29 01:00+0300"],
    ),
    "Beirut, a Saturday's times come twice": (
        "30 23 * * SAT",
        "Asia/Beirut",
        "2026-10-24T12:00",
        "2026-10-25T12:00",
        ["24 23:30+0300"],
    ),
    "Cairo, midnight in a gap": (
        "0 0 * * *",
        "Africa/Cairo",
        "2026-04-23T12:00",
        "2026-04-24T12:00",
        ["24 01:00+0300"],
    ),
    "Casablanca, Ramadan begins": (
        "30 2 * * *",
        "Africa/Casablanca",
        "2026-02-14T12:00",
        "2026-02-15T12:00",
        ["15 02:30+0100"],
    ),
    "Casablanca, Ramadan ends": (
        "30 2 * * *",
        "Africa/Casablanca",
        "2026-03-21T12:00",
        "2026-03-22T12:00",
        ["22 03:00+0100"],
    ),
    "Dublin, where winter is the exception": (
        "30 1 * * *",
        "Europe/Dublin",
        "2026-10-24T12:00",
        "2026-10-25T12:00",
        ["25 01:30+0100"],
    ),
    # A whole day that never was: its jobs run at the first instant of the next.
    "Apia, fixed": (
        "0 3 * * *",
        "Pacific/Apia",
        "2011-12-29",
        "2011-12-31T23:00",
        ["29 03:00-1000", "31 00:00+1400", "31 03:00+1400"],
    ),
    "Apia, monthly on the day that was skipped": (
        "0 3 30 * *",
        "Pacific/Apia",
        "2011-12-29",
        "2011-12-31T23:00",
        ["31 00:00+1400"],
    ),
    "Apia, wildcard": (
        "0 */12 * * *",
        "Pacific/Apia",
        "2011-12-29",
        "2011-12-31T23:00",
        ["29 00:00-1000", "29 12:00-1000", "31 00:00+1400", "31 12:00+1400"],
    ),
    "Kwajalein, 1993": (
        "0 12 * * *",
        "Pacific/Kwajalein",
        "1993-08-20",
        "1993-08-22T23:00",
        ["20 12:00-1200", "22 00:00+1200", "22 12:00+1200"],
    ),
    "Kwajalein, 1969, where 23 hours came twice": (
        "0 12 * * *",
        "Pacific/Kwajalein",
        "1969-09-30",
        "1969-10-02T00:00",
        ["30 12:00+1100", "01 12:00-1200"],
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_known_traps(name: str) -> None:
    """C10.3."""
    expression, zone, start, end, expected = TRAPS[name]
    assert ticks_on(expression, zone, start, end) == expected


def test_the_next_tick_is_later_also_when_asked_within_a_repeated_hour() -> None:
    """C10.3 (node-cron#492, apscheduler#980): an evaluator that answers with a past time spins."""
    fixed = Cron("30 2 * * *", timezone="Europe/Paris")
    for minutes in range(0, 180, 5):
        instant = utc("2026-10-25T00:00") + minutes * MINUTE
        expected = utc("2026-10-25T00:30") if minutes < 30 else utc("2026-10-26T01:30")
        assert fixed.next_after(instant) == expected


def test_a_yearly_wildcard_job_is_found_on_either_side_of_a_fold() -> None:
    """C10.3: the search leaps over the months between, not over a fold that shows a time again."""
    paris = Cron("*/30 2 25 10 *", timezone="Europe/Paris")
    assert paris.next_after(utc("2026-10-25T00:30")) == utc("2026-10-25T01:00")
    # At 00:01 on 7 November 2010 the clock went back to 23:01 on the 6th.
    newfoundland = Cron("* * 7 11 *", timezone="America/St_Johns")
    midnight = utc("2010-11-07T02:30")
    assert newfoundland.previous(utc("2010-11-07T03:00")) == midnight
    assert newfoundland.next_after(midnight) == utc("2010-11-07T03:30")


def test_offsets_that_are_no_whole_minutes() -> None:
    """Before 1911 Paris was 9 min 21 s ahead: a tick is where the clock shows :00, not where UTC does."""
    schedule = Cron("0 12 * * *", timezone="Europe/Paris")
    assert schedule.next_after(utc("1900-01-01")) == utc("1900-01-01T11:50:39")


def test_a_time_zone_that_needs_no_data() -> None:
    """C10.3: UTC works where no time zone data is installed."""
    assert Cron("0 0 * * *")._clock.zone is UTC


@pytest.mark.parametrize(
    ("expression", "tick"),
    [
        ("0 0 29 2 *", "2028-02-29"),
        ("0 0 31 * *", "2026-07-31"),
        ("0 0 L * *", "2026-07-31"),
        ("0 0 L-1 2 *", "2027-02-27"),
        ("0 0 * * 5L", "2026-07-31"),
        ("0 0 * * FRI#2", "2026-08-14"),
        ("0 0 * * MON#5", "2026-08-31"),
        ("0 0 13 * FRI", "2026-07-24"),  # either
        ("0 0 13 */1 FRI", "2026-07-24"),
        ("0 0 */2 * FRI", "2026-07-31"),  # both: a star stands first
        ("0 0 13 * */2", "2026-08-13"),  # both; it is a Thursday
        ("0 0 * 2 SUN#5", "2032-02-29"),
        ("0 0 1 1 0", "2027-01-01"),
        ("0 0 1 1 7", "2027-01-01"),
    ],
)
def test_days(expression: str, tick: str) -> None:
    """C10.3: Vixie's rule for the two day fields, leap days, the last and the n-th."""
    assert Cron(expression).next_after(utc("2026-07-20T03:00")) == utc(tick), expression


def test_the_rarest_job_is_found_across_a_century() -> None:
    """From 2088 the next 29 February that is a Sunday comes 40 years later: 2100 has none."""
    assert Cron("0 0 * 2 SUN#5").next_after(utc("2088-03-01")) == utc("2128-02-29")
    assert Cron("0 0 * 2 SUN#5").previous(utc("2128-02-29")) == utc("2088-02-29")


def test_the_ends_of_the_calendar() -> None:
    """There is no tick any more, and no crash."""
    for zone in ("UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Asia/Kathmandu"):
        for expression in ("* * * * *", "0 3 * * *", "0 0 29 2 *", "* * 29 2 *"):
            schedule = Cron(expression, timezone=zone)
            first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
            assert schedule.previous(first) is schedule.tick_at(first) is schedule.next_after(last) is None
            for instant in (first, last):
                for tick in (schedule.next_after(instant), schedule.previous(instant), schedule.tick_at(instant)):
                    assert tick is None or tick.tzinfo is UTC
            assert schedule.between(last - timedelta(days=9), last, 3) == schedule.between(
                last - timedelta(days=9), last - timedelta(days=7), 3
            )


def fields(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int], bool]]:
    """Make a field with what it means: text, numbers, whether it begins with a star."""
    everything = range(low, high + 1)
    number = st.integers(low, high)
    step = st.integers(1, high - low)
    star = st.builds(lambda n: (f"*/{n}" if n > 1 else "*", frozenset(everything[::n]), True), st.just(1) | step)
    one = number.map(lambda n: (str(n), frozenset({n}), False))
    span = st.tuples(number, number, step).map(
        lambda t: (f"{min(t[:2])}-{max(t[:2])}/{t[2]}", frozenset(range(min(t[:2]), max(t[:2]) + 1, t[2])), False)
    )
    tail = st.tuples(number, step).map(lambda t: (f"{t[0]}/{t[1]}", frozenset(range(t[0], high + 1, t[1])), False))
    listed = st.lists(star | one | span | tail, min_size=1, max_size=3)
    return listed.map(
        lambda items: (
            ",".join(text for text, _, _ in items),
            frozenset[int]().union(*(numbers for _, numbers, _ in items)),
            items[0][2],
        )
    )


def day_fields(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int], bool]]:
    return st.just(("*", frozenset(range(low, high + 1)), True)) | fields(low, high)


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, Meaning]:
    """Make an expression with what it means."""
    minute, hour = draw(fields(0, 59)), draw(fields(0, 23))
    day, month, weekday = draw(day_fields(1, 31)), draw(day_fields(1, 12)), draw(day_fields(0, 6))
    names = ("minute", "hour", "day", "month", "weekday")
    parts = (minute, hour, day, month, weekday)
    stars = frozenset(name for name, part in zip(names, parts, strict=True) if part[2])
    meant = Meaning(minute[1], hour[1], day[1], month[1], weekday[1], stars)
    assume(any(meant.names_day(day) for day in DAYS))
    return " ".join(part[0] for part in parts), meant


ZONES = st.sampled_from(zone_names()) | st.sampled_from(["Europe/Paris", "Australia/Lord_Howe", "America/Santiago"])
INSTANTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
MODERN = st.datetimes(datetime(1972, 2, 1), datetime(2100, 1, 1), timezones=st.just(UTC))


@settings(max_examples=60, **UNHURRIED)
@given(expressions(), ZONES, MODERN)
def test_any_expression_ticks_as_the_walk_says(made: tuple[str, Meaning], zone: str, near: datetime) -> None:
    """C10.3: against the rule told again, over the days from any instant on."""
    expression, meant = made
    schedule = Cron(expression, timezone=zone)
    tick = schedule.next_after(near) or near
    start = tick.replace(second=0, microsecond=0) - timedelta(hours=20)
    walk = Walk(ZoneInfo(zone), start, start + timedelta(hours=40), MINUTE)
    assert schedule.between(walk.start, walk.end, 10_000) == walk.ticks(meant)


@settings(max_examples=80, **UNHURRIED)
@given(expressions(), ZONES, INSTANTS)
def test_ticks_are_strictly_monotonic_and_consistent(made: tuple[str, Meaning], zone: str, instant: datetime) -> None:
    """C10.3: next(t) > t, previous(t) < t, nothing between them, and the one leads back to the other."""
    schedule = Cron(made[0], timezone=zone)
    later, earlier = schedule.next_after(instant), schedule.previous(instant)
    at = schedule.tick_at(instant, timedelta(0))
    if later:
        assert later > instant
        assert schedule.previous(later) == at
        assert schedule.tick_at(later) == later
        assert schedule.next_after(later - timedelta(microseconds=1)) == later
    if earlier:
        assert earlier < instant
        assert schedule.tick_at(earlier) == earlier
        following = schedule.next_after(earlier)
        assert following == later or following == at == instant
    if at and later:
        assert at <= instant < later
        assert schedule.next_after(at) == later


@settings(max_examples=60, **UNHURRIED)
@given(expressions(), ZONES)
def test_the_canonical_text_means_the_same_and_is_its_own(made: tuple[str, Meaning], zone: str) -> None:
    """C10.1: nodes compare schedules by it."""
    expression, _ = made
    schedule = Cron(expression, timezone=zone)
    again = Cron(schedule.text, timezone=zone)
    assert again == schedule
    assert (again.text, again.fingerprint, hash(again)) == (schedule.text, schedule.fingerprint, hash(schedule))
    assert (again._calendar, again.follows_elapsed_time) == (schedule._calendar, schedule.follows_elapsed_time)
    assert again.describe() == schedule.describe()


@given(
    st.frozensets(st.integers(1, 31), max_size=3),
    st.frozensets(st.integers(0, 5), max_size=2),
    st.frozensets(st.integers(0, 6), max_size=3),
    st.frozensets(st.tuples(st.integers(0, 6), st.sampled_from([1, 2, 3, 4, 5, -1])), max_size=2),
    MODERN,
)
@settings(max_examples=100, **UNHURRIED)
def test_days_are_those_of_a_walk_over_days(
    days: frozenset[int],
    before_last: frozenset[int],
    weekdays: frozenset[int],
    nth: frozenset[tuple[int, int]],
    near: datetime,
) -> None:
    """C10.3: `L`, `L-3`, `5L` and `5#2` among plain days, either field or both."""
    day_items = [*map(str, days), *(f"L-{back}" if back else "L" for back in before_last)]
    week_items = [*map(str, weekdays), *(f"{day}L" if which < 0 else f"{day}#{which}" for day, which in nth)]
    stars = {name for name, items in (("day", day_items), ("weekday", week_items)) if not items}
    meant = Meaning(
        minutes=frozenset({0}),
        hours=frozenset({12}),
        days=days if day_items else frozenset(range(1, 32)),
        weekdays=weekdays if week_items else frozenset(range(7)),
        stars=frozenset(stars),
        before_last=before_last,
        nth=nth,
    )
    schedule = Cron(f"0 12 {','.join(day_items) or '*'} * {','.join(week_items) or '*'}")
    noon = near.replace(hour=12, minute=0, second=0, microsecond=0)
    span = [noon + timedelta(days=n) for n in range(1, 120)]
    assert schedule.between(noon, span[-1], 200) == [day for day in span if meant.names_day(day.date())]
