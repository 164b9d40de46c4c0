"""The strip of a job's last runs: one cell a run, oldest first, its outcome by colour and by shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from tenure.operating import RunGlance, RunState
from tenure.web.views.words import in_full, slug, took

CELL: Final = 10
HEIGHT: Final = 24
_MOST_KEPT: Final = 4_096


class Cell(NamedTuple):
    """Show one run in a strip: all that its look depends on."""

    run: str
    state: RunState
    tip: str


def cells(runs: Iterable[RunGlance]) -> tuple[Cell, ...]:
    """Make the cells of runs, which come newest first."""
    return tuple(reversed([Cell(str(run.id), run.state, _tip(run)) for run in runs]))


def _tip(run: RunGlance) -> str:
    parts = [in_full(run.at), run.state.value]
    parts += [f"took {took(run.duration)}"] if run.duration is not None else []
    parts += [f"attempt {run.attempt}"] if run.attempt > 1 else []
    parts += [f"on {run.holder}"] if run.holder else []
    return " · ".join(parts)


class Strips:
    """Draw strips, and give those again whose runs are the same: of many jobs few have a new run since a second ago."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._drawn: dict[str, tuple[tuple[RunGlance, ...], Markup]] = {}

    def of(self, code: str, runs: tuple[RunGlance, ...]) -> Markup:
        """Draw the strip of a job's last runs, which come newest first."""
        known = self._drawn.get(code)
        if known is not None and known[0] == runs:
            return known[1]
        if len(self._drawn) >= _MOST_KEPT:
            self._drawn.clear()
        drawn = strip(cells(runs[: self._room]), self._room)
        self._drawn[code] = runs, drawn
        return drawn


def strip(shown: tuple[Cell, ...], room: int) -> Markup:
    """Draw cells, the newest at the right; a reader that does not see them hears the counts instead."""
    first = room - len(shown)
    drawn = "".join(
        f'<a href="run?id={cell.run}" tabindex="-1"><title>{escape(cell.tip)}</title>'
        f'<use href="#s-{slug(cell.state)}" x="{(first + place) * CELL}"/></a>'
        for place, cell in enumerate(shown)
    )
    empty = "".join(f'<use href="#s-none" x="{place * CELL}"/>' for place in range(first))
    box = f'viewBox="0 0 {room * CELL} {HEIGHT}" preserveAspectRatio="xMinYMid"'
    return Markup(  # noqa: S704 - put together from ids and slugs of our own, and from what is escaped
        f'<svg class="strip" {box} aria-hidden="true" focusable="false">{empty}{drawn}</svg>'
        f'<span class="unseen">{escape(in_words(shown))}</span>'
    )


def in_words(shown: tuple[Cell, ...]) -> str:
    """Say what a strip shows."""
    if not shown:
        return "No runs yet."
    counts = Counter(cell.state.value for cell in shown).most_common()
    return f"Last {len(shown)} runs: " + ", ".join(f"{count} {state}" for state, count in counts) + "."
