"""Instants, durations and states as a page shows them. What changes with the clock is marked, so that a script goes on
with it and a comparison leaves it out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from markupsafe import Markup

from tenure.durations import format_duration
from tenure.operating import Health, RunState

_SECOND: Final = timedelta(seconds=1)
_TENTHS_MATTER: Final = timedelta(seconds=10)
_CLOCKED: Final = re.compile(r'(<(?:time|text) data-clock="[^>]*>)[^<]*|(<rect data-clock="" )width="[^"]*"')

_TONES: Final = {
    RunState.SUCCEEDED: "good",
    RunState.RUNNING: "busy",
    RunState.EXPIRED: "bad",
    RunState.FAILED: "bad",
    RunState.TIMED_OUT: "bad",
    RunState.EXHAUSTED: "bad",
    RunState.QUEUED: "waits",
    RunState.TRIGGERED: "waits",
    RunState.RELEASED: "waits",
    RunState.RETRIED: "waits",
}
_HEALTH_TONES: Final = {
    Health.OK: "good",
    Health.OVERDUE: "bad",
    Health.EXHAUSTED: "bad",
    Health.FAILING: "warn",
    Health.ORPHANED: "warn",
}


def tone_of(state: RunState | Health) -> str:
    """Give the class that colours a state; its shape and its word say the same."""
    if isinstance(state, Health):
        return _HEALTH_TONES.get(state, "quiet")
    return _TONES.get(state, "quiet")


def slug(state: RunState | Health) -> str:
    """Give the name of a state's shape."""
    return state.value.replace(" ", "-")


def without_clock(html: str) -> str:
    """Leave out what a moment later would be shown otherwise, so that only what has changed is told apart."""
    return _CLOCKED.sub(r"\1\2", html)


def machine(instant: datetime) -> str:
    """Write an instant for programs."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_full(instant: datetime) -> str:
    """Write an instant for people, in UTC."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def in_zone(instant: datetime, timezone: str | None) -> str:
    """Write an instant as the clocks of a time zone show it, with the day of the week and the zone's offset."""
    zone: ZoneInfo | None = None
    if timezone:
        try:
            zone = ZoneInfo(timezone)
        except (ValueError, OSError, KeyError):  # this machine does not know the zone
            zone = None
    local = instant.astimezone(zone or UTC)
    return f"{local:%a %d %b %Y, %H:%M:%S} {local:%Z}"


def relative(instant: datetime, clock: datetime) -> str:
    """Say how far an instant is from now: `in 4m12s`, `3m5s ago`, `now`."""
    away = instant - clock
    if abs(away) < _SECOND:
        return "now"
    words = format_duration(away)
    return f"in {words}" if away > timedelta(0) else f"{words} ago"


def _time(kind: str, instant: datetime, text: str) -> Markup:
    return Markup(  # noqa: S704 - nothing in it but instants and durations
        f'<time data-clock="{kind}" datetime="{machine(instant)}" title="{in_full(instant)}">{text}</time>'
    )


def when(instant: datetime | None, clock: datetime) -> Markup:
    """Show an instant as it is from now; in full where one points at it."""
    return Markup("never") if instant is None else _time("when", instant, relative(instant, clock))


def since(instant: datetime, clock: datetime) -> Markup:
    """Show how long something goes on already."""
    return _time("since", instant, format_duration(max(clock - instant, timedelta(0)) // _SECOND * _SECOND))


def left(until: datetime, clock: datetime) -> Markup:
    """Show how much of a lease is left, or since when it is over."""
    away = until - clock
    words = format_duration(abs(away) // _SECOND * _SECOND)
    return _time("left", until, f"{words} left" if away >= timedelta(0) else f"ran out {words} ago")


def share_left(until: datetime, lease_ms: int, clock: datetime) -> float:
    """Say how much of a lease is left, of 100."""
    away_ms = (until - clock) / timedelta(milliseconds=1)
    return round(min(max(away_ms / max(lease_ms, 1), 0.0), 1.0) * 100, 1)


def exact(instant: datetime | None) -> Markup:
    """Show an instant in UTC."""
    if instant is None:
        return Markup("—")
    return Markup(f'<time datetime="{machine(instant)}">{in_full(instant)}</time>')  # noqa: S704 - an instant alone


def took(duration: timedelta | None) -> str:
    """Write a duration, to a tenth of a second where that tells two apart; a dash if there is none."""
    if duration is None:
        return "—"
    if _SECOND <= abs(duration) < _TENTHS_MATTER:
        return f"{abs(duration) / _SECOND:.1f}".removesuffix(".0") + "s"
    return format_duration(duration)
