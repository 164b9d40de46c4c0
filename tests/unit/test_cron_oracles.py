"""C10.3 beside two other evaluators, where they can be trusted.

Not trusted: cronsim 2.8 may answer a time in the past when it is asked within a repeated hour, and misses ticks in
Australia/Lord_Howe; croniter runs jobs at fixed times twice in a fold. What happens there is in test_cron.py.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tenure.scheduling import Cron
from tests.support.cron_walk import Meaning
from tests.unit.test_cron import MODERN, UNHURRIED, expressions

DAY = timedelta(days=1)
# Their days of the week end with 7, so a step to the end may also reach Sunday; cronsim takes 3-3/5 for 3/5.
PLAIN = expressions().filter(lambda made: "/" not in made[0].split()[4] and not re.search(r"\b(\d+)-\1/", made[0]))
ZONES = ["UTC", "Europe/Paris", "America/New_York", "America/Santiago", "Asia/Ho_Chi_Minh", "Africa/Casablanca"]


def is_plain_to_croniter(made: tuple[str, Meaning]) -> bool:
    """Leave out day fields that hold every day without beginning with a star: croniter takes 0-6 for a star."""
    meant = made[1]
    return ("day" in meant.stars or len(meant.days) < 31) and ("weekday" in meant.stars or len(meant.weekdays) < 7)


def is_quiet(zone: ZoneInfo, start: datetime, end: datetime) -> bool:
    """Say whether no clock changes from a day before the first instant to a day after the last."""
    days = range((end - start).days + 3)
    return len({(start + (n - 1) * DAY).astimezone(zone).utcoffset() for n in days}) == 1


@settings(max_examples=60, derandomize=True, **UNHURRIED)
@given(PLAIN, st.sampled_from(ZONES), MODERN)
def test_cronsim_says_the_same_where_no_clock_changes(made: tuple[str, Meaning], zone: str, near: datetime) -> None:
    """C10.3."""
    near, local = near.replace(microsecond=0), ZoneInfo(zone)
    theirs = [tick.astimezone(UTC) for tick in islice(CronSim(made[0], near.astimezone(local)), 5)]
    assume(len(theirs) == 5 and theirs[-1] - near < timedelta(days=90) and is_quiet(local, near, theirs[-1]))
    assert Cron(made[0], timezone=zone).between(near, theirs[-1], 9) == theirs


@settings(max_examples=60, derandomize=True, **UNHURRIED)
@given(PLAIN.filter(is_plain_to_croniter), MODERN)
def test_croniter_says_the_same_in_utc(made: tuple[str, Meaning], near: datetime) -> None:
    """C10.3, with the rule for stars in day fields that croniter calls cron's bug."""
    near = near.replace(microsecond=0)
    theirs = croniter(made[0], near, ret_type=datetime, implement_cron_bug=True, max_years_between_matches=60)
    schedule, tick = Cron(made[0]), near
    for _ in range(5):
        tick = schedule.next_after(tick) or pytest.fail("no tick")
        assert tick == theirs.get_next()


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 0 * * *", "*/20 * * * *", "30 */2 * * *", "0,30 1-3 * * SUN"])
@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "Africa/Cairo", "Asia/Beirut", "Pacific/Apia"])
def test_cronsim_says_the_same_over_years_with_changes(expression: str, zone: str) -> None:
    """C10.3: where cronsim follows Debian's cron, whose rule is ours but for the span of a gap."""
    start = datetime(2012, 1, 10, 12, tzinfo=UTC)
    theirs = [tick.astimezone(UTC) for tick in islice(CronSim(expression, start.astimezone(ZoneInfo(zone))), 2_000)]
    assert Cron(expression, timezone=zone).between(start, theirs[-1], 3_000) == theirs
