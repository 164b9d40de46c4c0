"""C10.3 on every day on which a clock changes: ten years of every IANA zone, walked minute by minute.

The long form takes every change from 1850 to 2037, at each second where offsets are no whole minutes:
`TENURE_EVERY_TRANSITION=1 make test TESTS=tests/unit/test_cron_transitions.py PYTEST_OPTIONS=--timeout=0`.
"""

from __future__ import annotations

import itertools
import struct
import zoneinfo
from bisect import bisect_left, bisect_right
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tenure.scheduling import Cron
from tests.support.cron_walk import Meaning, Transition, Walk, transitions, whole_history, zone_names

YEARS = range(1850, 2038) if whole_history() else range(2011, 2021)
MINUTE = timedelta(minutes=1)
AROUND = [(-75, 0), (-30, 1), (0, -1), (0, 0), (0, 1), (15, -1), (30, 0), (60, -1), (60, 0)]


def meaning(minutes: set[int] | range, hours: set[int] | range, stars: str = "", **days: frozenset[int]) -> Meaning:
    """Say what minute and hour are; days are all, unless they are given."""
    starred = {*stars.split(), *({"day", "weekday"} - {name.removesuffix("s") for name in days})}
    return Meaning(frozenset(minutes), frozenset(hours), stars=frozenset(starred), **days)  # type: ignore[arg-type]


# Fixed times, thick and thin; wildcards in the minute, in the hour, in both.
EXPRESSIONS = {
    "30 2 * * *": meaning({30}, {2}),
    "0 0 * * *": meaning({0}, {0}),
    "15,45 0-3,23 * * *": meaning({15, 45}, {0, 1, 2, 3, 23}),
    "0-59/25 0-23 * * *": meaning({0, 25, 50}, range(24)),
    "30 1 * * SUN": meaning({30}, {1}, weekdays=frozenset({0})),
    "0 12 1,31 * *": meaning({0}, {12}, days=frozenset({1, 31})),
    "*/20 2 * * *": meaning(range(0, 60, 20), {2}, "minute"),
    "30 * * * *": meaning({30}, range(24), "hour"),
    "*/30 */2 * * SAT,SUN": meaning(range(0, 60, 30), range(0, 24, 2), "minute hour", weekdays=frozenset({6, 0})),
}


def walk_around(change: Transition) -> Walk:
    """Walk from half a day before to half a day after the change and what it skips or repeats."""
    fine = not whole_minutes(change)
    around = timedelta(hours=2) if fine else timedelta(hours=13)
    around += abs(change.after - change.before)
    return Walk(ZoneInfo(change.zone), change.at - around, change.at + around, timedelta(seconds=1) if fine else MINUTE)


@cache
def schedule_of(expression: str, zone: str) -> Cron:
    return Cron(expression, timezone=zone)


def whole_minutes(change: Transition) -> bool:
    return not (change.before % MINUTE or change.after % MINUTE or change.at.second)


def ask_around(schedule: Cron, walk: Walk, expected: list[datetime], instants: list[datetime]) -> None:
    """Compare what a schedule says with the ticks that the walk found, from many places."""
    assert schedule.between(walk.start, walk.end, 10_000) == expected
    for instant in instants:
        later, earlier = bisect_right(expected, instant), bisect_left(expected, instant) - 1
        if later < len(expected):
            assert schedule.next_after(instant) == expected[later], instant
        if earlier >= 0:
            assert schedule.previous(instant) == expected[earlier], instant
        if later:
            assert schedule.tick_at(instant, timedelta(0)) == expected[later - 1], instant


@pytest.mark.parametrize("year", YEARS)
def test_the_walk_and_the_schedule_agree_wherever_a_clock_changes(year: int) -> None:
    """C10.3."""
    for change in transitions(YEARS[0], YEARS[-1] + 1):
        if change.at.year != year:
            continue
        walk = walk_around(change)
        instants = [change.at + timedelta(minutes=m, microseconds=us) for m, us in AROUND]
        for expression, meant in EXPRESSIONS.items():
            schedule = schedule_of(expression, change.zone)
            ask_around(schedule, walk, walk.ticks(meant), instants)


def test_every_minute_is_every_minute_that_passes() -> None:
    """C10.3: nothing is made up in a gap, nothing is left out in a fold, where offsets are whole minutes."""
    seen = set()
    for change in transitions(2011, 2021):
        shape = (change.before, change.after)
        if shape not in seen and whole_minutes(change):
            seen.add(shape)
            start = change.at - timedelta(minutes=150)
            ticks = Cron("* * * * *", timezone=change.zone).between(start, start + 300 * MINUTE, 1_000)
            assert ticks == [start + n * MINUTE for n in range(1, 301)], change
    assert len(seen) > 50


def test_no_zone_changes_twice_within_three_days_nor_by_more_than_a_day() -> None:
    """What the search for a change stands on, over everything on record. A coarse look would miss a pair of changes.

    So each zone's own list of changes is read, from the file that holds it.
    """
    for name in zone_names():
        changes = recorded_changes(name)
        assert all(abs(after - before) <= 86_400 for _, before, after in changes), name
        assert all(b[0] - a[0] > 3 * 86_400 for a, b in itertools.pairwise(changes)), name


def recorded_changes(name: str) -> list[tuple[int, int, int]]:
    """Read the second block of a TZif file (RFC 8536): when the offset changes, from what, to what, in seconds."""
    data = zone_file(name)
    _, _, leaps, times, types, chars = struct.unpack(">6l", data[20:44])
    data = data[44 + times * 5 + types * 6 + chars + leaps * 8 + sum(struct.unpack(">2l", data[20:28])) :]
    times, types = struct.unpack(">2l", data[32:40])
    when = struct.unpack(f">{times}q", data[44 : 44 + times * 8])
    kinds = data[44 + times * 8 : 44 + times * 9]
    offsets = [struct.unpack(">l", data[at : at + 4])[0] for at in range(44 + times * 9, 44 + times * 9 + types * 6, 6)]
    befores = [offsets[0], *(offsets[kind] for kind in kinds)]
    return [
        (at, before, offsets[kind])
        for at, before, kind in zip(when, befores, kinds, strict=False)
        if before != offsets[kind]
    ]


def zone_file(name: str) -> bytes:
    for root in zoneinfo.TZPATH:
        if (path := Path(root, name)).is_file():
            return path.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(name).read_bytes()
