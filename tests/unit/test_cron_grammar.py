"""What a cron expression may say, what it says in words, and what an error shows (C10.3, C11)."""

from __future__ import annotations

import copy
import pickle
import zoneinfo
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import InvalidScheduleError, TenureError
from tenure.scheduling import Cron


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("*/5 * * * *", "*/5 * * * *"),
        (" 0\t3  * * * ", "0 3 * * *"),
        ("00 03 * * *", "0 3 * * *"),
        ("0 0 * JAN-MAR,dec Mon-fri", "0 0 * 1-3,12 1-5"),
        ("1,2,3,5 * * * *", "1-3,5 * * * *"),
        ("5/15 * * * *", "5-50/15 * * * *"),
        ("1-30/7 * * * *", "1-29/7 * * * *"),
        ("*/1 * * * *", "* * * * *"),
        ("*,5 * * * *", "* * * * *"),
        ("*/2,1-59/2 * * * *", "* * * * *"),
        ("*/20,5 * * * *", "*/20,5 * * * *"),
        ("5,*/20 * * * *", "0,5,20,40 * * * *"),  # no star: it does not begin with one
        ("0-59 0-23 * * *", "0-59 0-23 * * *"),  # no star either
        ("0 0 ? * 7", "0 0 * * 0"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("0 0 * * FRI-SUN", "0 0 * * 0,5,6"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * 0-7", "0 0 * * 0-6"),
        ("0 0 * * SUN-TUE", "0 0 * * 0-2"),
        ("0 0 * * SUN-SUN", "0 0 * * 0"),
        ("0 0 * * 1/2", "0 0 * * 1,3,5"),
        ("0 0 L,1,L-3 * *", "0 0 1,L,L-3 * *"),
        ("0 0 * * friL,MON#2,7l", "0 0 * * 0L,1#2,5L"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@DAILY", "0 0 * * *"),
        (" @midnight ", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_the_canonical_text(written: str, text: str) -> None:
    """C10.3: the same schedule has the same text, however it is spelled."""
    assert Cron(written).text == text
    assert Cron(written) == Cron(text)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/7 * * * *", "every 7th minute of every hour"),
        ("0 3 * * *", "at 03:00 every day"),
        ("0,30 3,15 * * *", "at 03:00, 03:30, 15:00 and 15:30 every day"),
        ("5 * * * MON-FRI", "at minute 5 of every hour, Monday to Friday"),
        ("5,35 */2 * * *", "at minutes 5 and 35 of every 2nd hour"),
        ("*/10 9-17 * * SAT,SUN", "every 10th minute of hours 9 to 17, Saturday and Sunday"),
        ("0-40/10 1 * * *", "at 01:00, 01:10, 01:20, 01:30 and 01:40 every day"),
        ("0-50/10 1,2 * * *", "every 10th minute from 0 to 50 of hours 1 and 2"),
        ("0 0 1,15 * *", "at 00:00 on days 1 and 15 of the month"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 15,L-2 * *", "at 00:00 on day 15 and the last day but 2 of the month"),
        ("0 0 * * 5L", "at 00:00, the last Friday of the month"),
        ("0 0 * JAN,MAR-MAY FRI#2", "at 00:00, the 2nd Friday of the month, in January and March to May"),
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month or Friday"),
        ("0 0 */2 * FRI-SUN", "at 00:00 on every 2nd day of the month, if it is Friday to Sunday"),
        ("0 0 * 2 *", "at 00:00 every day, in February"),
    ],
)
def test_words(expression: str, words: str) -> None:
    """What people check before they trust a schedule; the time zone always stands there."""
    assert Cron(expression, timezone="Europe/Paris").describe() == f"{words} (Europe/Paris)"


# A caret marks the place; it stands under the character in the line above it.
REFUSED = {
    "60 * * * *|^": "minute: 60 is not within 0 to 59",
    "-1 * * * *|^": "minute: something is missing here",
    "0 24 * * *|  ^": "hour: 24 is not within 0 to 23",
    "0 3 32 * *|    ^": "day of month: 32 is not within 1 to 31",
    "0 3 0 * *|    ^": "day of month: 0 is not within 1 to 31",
    "0 3 * 13 *|      ^": "month: 13 is not within 1 to 12",
    "0 3 * * 8|        ^": "day of week: 8 is not within 0 to 7",
    "0 3 * FOO *|      ^": "month: FOO is not known",
    "JAN * * * *|^": "minute: JAN is not known",
    "1,,2 * * * *|  ^": "minute: something is missing here",
    "1, * * * *|  ^": "minute: something is missing here",
    "1- * * * *|  ^": "minute: something is missing here",
    "1-2-3 * * * *|   ^": "minute: - has no meaning here",
    "*x * * * *| ^": "minute: after * only a step",
    "*-5 * * * *| ^": "minute: after * only a step",
    "1.5 * * * *| ^": "minute: . has no meaning here",
    "? * * * *|^": "minute: ? has no meaning here",
    "H * * * *|^": "minute: H is not known",
    "*/0 * * * *|  ^": "minute: a step is a number of 1 to 59, within one hour; 0 was given",
    "*/90 * * * *|  ^": "minute: a step is a number of 1 to 59, within one hour; 90 was given",
    "*/ * * * *|  ^": "minute: a step is a number of 1 to 59, within one hour; nothing was given",
    "0 */24 * * *|    ^": "hour: a step is a number of 1 to 23, within one day; 24 was given",
    "*/5/2 * * * *|   ^": "minute: a second step",
    "0 22-2 * * *|  ^": "hour: the range 22-2 runs backwards. Write 22-23,0-2",
    "0 0 * NOV-FEB *|      ^": "month: the range NOV-FEB runs backwards. Write NOV-DEC,JAN-FEB",
    "0 0 * * FRI-MON|        ^": "day of week: the range FRI-MON runs backwards. Write FRI-SAT,SUN-MON",
    "0 0 * * 6-1|        ^": "day of week: the range 6-1 runs backwards. Write 6,0-1",
    "0 0 LW * *|    ^": "day of month: LW is not known. Write L for the last day",
    "0 0 15W * *|    ^": "day of month: 15W is not known",
    "0 0 L-31 * *|    ^": "day of month: L-31 is not known",
    "0 0 L/2 * *|    ^": "day of month: L/2 is not known",
    "0 0 * * L|        ^": "day of week: L is not known",
    "0 0 * * FRI#6|            ^": "day of week: a month has a 1st to a 5th of each day; #6 was given",
    "0 0 * * FRI#|            ^": "day of week: a month has a 1st to a 5th",
    "0 0 * * #2|        ^": "day of week: something is missing here",
    "0 0 * * 9#2|        ^": "day of week: 9 is not within 0 to 7",
    "0 0 * *|        ^": "day of week: missing; 4 of 5 fields were given",
    "0 0 3 * * *|          ^": "6 fields were given, 5 are allowed",
    "@reboot|^": "@reboot is not a time. Register an INITIAL job",
    " @noon|^": "@noon is not known. Write one of @yearly",
    "0 0 30 2 *|    ^": "day of month: no month that is named has such a day",
    "0 0 31 4,6,9,11 *|    ^": "day of month: no month that is named has such a day",
    "0 0 L-29 2 *|    ^": "day of month: no month that is named has such a day",
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_names_the_field_and_shows_where(case: str) -> None:
    """C10.3, C11: the field, the limit, and a caret under what is wrong."""
    expression, caret = case.split("|")
    with pytest.raises(InvalidScheduleError) as caught:
        Cron(expression)
    message, shown, mark = str(caught.value).split("\n")
    assert message.startswith(f"cron expression: {REFUSED[case]}")
    assert shown.strip() == expression.strip()
    assert mark[4:].lstrip() == "^"
    assert mark == f"    {caret}" or expression.startswith(" ")
    assert isinstance(caught.value, TenureError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "expression", ["", "   ", "0\n3 * * *", "\u0660 3 * * *", "0 3 * * \u017fUN", "0 3\u00a0* * *", "\0"]
)
def test_what_is_no_line_of_plain_text_is_refused(expression: str) -> None:
    """C11: digits of other scripts, line ends and invisible spaces, too."""
    with pytest.raises(InvalidScheduleError, match="cron expression"):
        Cron(expression)


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["*"] * 5, "1," * 200 + "1 * * * *"])
def test_what_is_no_expression_at_all_is_refused(expression: Any) -> None:
    """C11."""
    with pytest.raises(InvalidScheduleError, match="cron expression must"):
        Cron(expression)


@given(st.text("0123456789*/-,#?LW@ SUNFRIJ\t", max_size=24) | st.text(max_size=12))
def test_no_text_raises_anything_else(text: str) -> None:
    """C11: an expression is read or refused."""
    try:
        schedule = Cron(text)
    except InvalidScheduleError:
        return
    assert Cron(schedule.text) == schedule


@pytest.mark.parametrize(
    "timezone",
    ["Europe/Pari", "America", "", "../etc", "localtime", "right/UTC", "a\0b", "x" * 999, "\udc80", None, 5, UTC],
)
def test_an_unknown_time_zone_is_one_clear_error(timezone: Any) -> None:
    """C10.3, C11."""
    with pytest.raises(InvalidScheduleError, match=r"^timezone .*Give (a name such as )?'Europe/Paris'"):
        Cron("0 3 * * *", timezone=timezone)


def test_a_system_without_time_zone_data_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """C11: UTC works all the same."""

    def missing(key: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr("tenure.scheduling.local_clock.ZoneInfo", missing)
    with pytest.raises(InvalidScheduleError, match=r"no time zone data\. Install its package tzdata, or: pip install"):
        Cron("0 3 * * *", timezone="Europe/Paris")
    assert Cron("0 3 * * *").next_after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 1, 3, tzinfo=UTC)


def test_it_is_a_value() -> None:
    """C10.1: frozen, hashable, to be pickled and copied; its repr makes it again."""
    made = Cron("*/5 9-17 * * MON-FRI", timezone="Asia/Ho_Chi_Minh")
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made) == eval(repr(made))
    assert len({made, copy.copy(made), Cron("*/5 9-17 * * 1-5", timezone="Asia/Ho_Chi_Minh")}) == 1
    assert made != Cron("*/5 9-17 * * MON-FRI", timezone="Asia/Bangkok")
    with pytest.raises(AttributeError):
        made._text = "* * * * *"  # type: ignore[misc]


def test_fingerprints_are_the_same_on_every_node() -> None:
    """C10.1: two nodes compare what they registered; these must never change."""
    assert Cron("0 3 * * *", timezone="Europe/Paris").fingerprint == "ceb2a1aef2710868"
    assert Cron("@daily").fingerprint == Cron("0 0 * * *").fingerprint
    assert Cron("@daily").fingerprint != Cron("@daily", timezone="Europe/Paris").fingerprint


@pytest.mark.parametrize(
    ("expression", "follows"),
    [
        ("* * * * *", True),
        ("*/5 2 * * *", True),
        ("30 * * * *", True),
        ("30 */2 * * *", True),
        ("30 2 * * *", False),
        ("0-59 0-23 * * *", False),
        ("5,*/20 2 * * *", False),
        ("@hourly", True),
        ("@daily", False),
    ],
)
def test_which_jobs_follow_elapsed_time(expression: str, follows: bool) -> None:
    """C10.3: those whose minute or hour begins with a star."""
    assert Cron(expression).follows_elapsed_time is follows
