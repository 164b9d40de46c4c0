"""Durations as people write them (C1.1)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.durations import format_duration, parse_duration
from tenure.errors import InvalidJobOptionsError


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("1h30m", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("2d", timedelta(days=2)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        (" 90m ", timedelta(minutes=90)),
        ("5m1ms", timedelta(minutes=5, milliseconds=1)),
        ("0", timedelta(0)),
        ("0s", timedelta(0)),
        ("999999999d", timedelta(days=999_999_999)),
    ],
)
def test_reads_what_people_write(text: str, duration: timedelta) -> None:
    """Units d, h, m, s, ms, the largest first (C1.1)."""
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        "s",
        "1.5h",
        "-1s",
        "+1s",
        "5 m",
        "5x",
        "30m1h",
        "5s5s",
        "1h30",
        "1_0s",
        "٣s",
        "5M",
        "1e3s",
        "5s\n6s",
    ],
)
def test_refuses_what_is_none(text: str) -> None:
    """An error that shows what was given, and how to write it (C11)."""
    with pytest.raises(InvalidJobOptionsError, match=r"is not a duration.*30s, 15m, 1h30m, 250ms, 2d") as refused:
        parse_duration(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["1000000000d", "9" * 18 + "h", "9" * 5000 + "s"])
def test_refuses_what_no_timedelta_holds(text: str) -> None:
    """One clear error, not an overflow, and not all of the text again."""
    with pytest.raises(InvalidJobOptionsError) as refused:
        parse_duration(text)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(milliseconds=1250), "1s"),
        (timedelta(seconds=-5), "5s"),
        (timedelta(hours=1, seconds=5), "1h"),
        (timedelta(hours=1, minutes=30, seconds=5), "1h30m"),
        (timedelta(days=400, hours=3, minutes=1), "400d3h"),
        (timedelta.max, "999999999d23h"),
    ],
)
def test_shows_the_two_largest_units(duration: timedelta, text: str) -> None:
    """Short, and without the sign: who prints it says `ago` or `left`."""
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(0)))
def test_what_is_shown_can_be_read(duration: timedelta) -> None:
    """And is never longer than what it shows, nor short by as much as a sixtieth of it or a second."""
    read = parse_duration(format_duration(duration))
    assert read <= duration
    assert duration - read < max(timedelta(seconds=1), duration / 24)
