"""A job's history as a chart: how long each run took above, how late it began below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from tenure.operating import RunGlance
from tenure.web.views.strips import Cell, cells
from tenure.web.views.words import slug, tone_of, took

_HEIGHT: Final = 100
_LEAST: Final = 2.0
_SLOTS: Final = 60
"""A chart has room for at least so many bars, so that a few do not become slabs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Show one run in a chart, which is 100 high."""

    run: str
    tip: str
    shape: str
    tone: str
    place: int
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Show one measure of the runs over time, oldest first."""

    name: str
    bars: tuple[Bar, ...]
    slots: int
    most: str
    half: str
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Show both measures of the same runs."""

    duration: Chart
    lag: Chart
    oldest: datetime
    newest: datetime


def history_of(runs: Sequence[RunGlance]) -> History | None:
    """Chart the runs that were begun, which come oldest first; `None` if there are none."""
    begun = [run for run in runs if run.attempt > 0 and run.started_at is not None]
    if not begun:
        return None
    return History(
        duration=_chart("Duration", begun, [run.duration for run in begun]),
        lag=_chart("Start lag", begun, [run.lag for run in begun]),
        oldest=begun[0].started_at or begun[0].at,
        newest=begun[-1].started_at or begun[-1].at,
    )


def _chart(name: str, runs: Sequence[RunGlance], values: Sequence[timedelta | None]) -> Chart:
    known = [max(value, timedelta(0)) for value in values if value is not None]
    most = max(known, default=timedelta(0))
    slots = max(len(runs), _SLOTS)
    shown = tuple(reversed(cells(runs)))
    bars = tuple(
        _bar(cell, slots - len(runs) + place, value, most)
        for place, (cell, value) in enumerate(zip(shown, values, strict=True))
        if value is not None
    )
    middle = timedelta(seconds=median(value.total_seconds() for value in known)) if known else timedelta(0)
    told = f"median {took(middle)}, longest {took(most)}" if known else "nothing measured yet"
    return Chart(name=name, bars=bars, slots=slots, most=took(most), half=took(most / 2), told=told)


def _bar(cell: Cell, place: int, value: timedelta, most: timedelta) -> Bar:
    share = max(value, timedelta(0)) / most if most else 0.0
    return Bar(
        run=cell.run,
        tip=cell.tip,
        shape=slug(cell.state),
        tone=tone_of(cell.state),
        place=place,
        height=round(max(share * _HEIGHT, _LEAST), 1),
    )
