"""`tenure timeline`: a text chart of runs over time, of all jobs or, run by run, of one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

import click

from tenure.cli.asking import ask
from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, plain
from tenure.cli.lives import glance_as_json
from tenure.cli.moments import clock_of, instant_of
from tenure.cli.options import Moment, code_argument, moment_option
from tenure.cli.output import NOTHING, Piece, emit_json, emit_pieces, iso
from tenure.durations import format_duration
from tenure.operating import RunGlance, RunState, Timeline, operations

_NARROWEST: Final = 20
_LONGEST_NAME: Final = 32
_DAY: Final = timedelta(days=1)
_SHORT: Final = timedelta(minutes=15)

_WAITS: Final = (RunState.QUEUED, RunState.TRIGGERED, RunState.RELEASED, RunState.RETRIED)
_NEVER_RAN: Final = (RunState.SKIPPED, RunState.TOO_LATE, RunState.OVERLAPPED, RunState.PAUSED)
# The worst comes last: where several runs fall into one place, it is the one that is shown.
_MARKS: Final[tuple[tuple[str, str, tuple[RunState, ...]], ...]] = (
    ("#", "green", (RunState.SUCCEEDED,)),
    ("-", "cyan", _NEVER_RAN),
    ("o", "yellow", _WAITS),
    (">", "yellow", (RunState.RUNNING,)),
    ("!", "red", (RunState.FAILED, RunState.TIMED_OUT)),
    ("?", "red", (RunState.EXPIRED,)),
    ("X", "bold red", (RunState.EXHAUSTED,)),
)
_RANK: Final = {state: rank for rank, (_, _, states) in enumerate(_MARKS) for state in states}
_LEGEND: Final = (
    "# succeeded   > running   ! failed or timed out, is retried   X exhausted   ? lease expired   o waits",
    "- did not run: skipped, too late, overlapped, or paused",
)


@click.command(
    epilog="""\b
Without CODE: a line for each job; where several runs fall into one place, the
worst is shown. With CODE: a line for each of its newest runs. Times are UTC.
Examples:
  tenure timeline --since 6h
  tenure timeline report --since 7d --limit 20
  tenure timeline --since 2026-07-20T00:00:00Z --until 2026-07-20T06:00:00Z"""
)
@code_argument(required=False)
@moment_option("--since", "Where it begins: an instant, or a duration ago.", default="1d")
@moment_option("--until", "Where it ends.  [default: now]")
@click.option(
    "--limit", type=click.IntRange(1, operations.TIMELINE_LIMIT), help="The newest so many.  [default: 40 of one job]"
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@connection_options
def timeline(
    *,
    connection: Connection,
    code: str | None,
    since: Moment,
    until: Moment | None,
    limit: int | None,
    as_json: bool,
) -> int:
    """Draw the runs that began in a span of time, and those under way."""
    most = limit or (operations.TIMELINE_LIMIT if code is None else _OF_ONE)
    with connection.service() as service:
        clock = clock_of(service)
        begin = instant_of(since, clock, "--since")
        end = instant_of(until, clock, "--until") if until is not None else clock
        if begin >= end:
            raise click.BadParameter("it must be earlier than the end of the span.", param_hint="--since")
        found = ask(service, operations.timeline, begin, end, code=code, limit=most)
    if as_json:
        emit_json(
            {
                "clock": iso(found.clock),
                "since": iso(found.since),
                "until": iso(found.until),
                "truncated": found.truncated,
                "runs": [glance_as_json(run) for run in found.runs],
            }
        )
    else:
        _emit(found, by_run=code is not None)
    return ExitCode.OK


_OF_ONE: Final = 40


@dataclass(frozen=True, slots=True)
class _Axis:
    """Place instants on a line of so many characters."""

    since: datetime
    until: datetime
    width: int

    def place(self, instant: datetime) -> int:
        """Give the character that an instant falls upon; those beyond an end fall upon it."""
        place = int((instant - self.since) / (self.until - self.since) * self.width)
        return min(max(place, 0), self.width - 1)

    def labels(self) -> str:
        """Write the times below which the line goes on, as many as there is room for."""
        span = self.until - self.since
        pattern = "%m-%d %H:%M" if span > 2 * _DAY else "%H:%M" if span > _SHORT else "%H:%M:%S"
        room = len(self.since.strftime(pattern)) + 6
        line = ""
        for place in range(0, self.width - room + 7, room):
            at = self.since + (self.until - self.since) * place / self.width
            line += f"|{at.astimezone(UTC).strftime(pattern)}".ljust(room)
        return line.rstrip()


def _emit(found: Timeline, *, by_run: bool) -> None:
    if not found.runs:
        return emit_pieces([[("No run began in this span, and none is under way.", "")]])
    lines = _of_runs(found) if by_run else _of_jobs(found)
    more: list[list[Piece]] = [[("There are more: the newest are shown. Give a later --since.", "")]]
    legend: list[list[Piece]] = [[], *([(line, "")] for line in _LEGEND)]
    return emit_pieces([*lines, *legend, *(more if found.truncated else [])])


def _of_jobs(found: Timeline) -> list[list[Piece]]:
    """Draw a line for each job, by name."""
    runs: dict[str, list[RunGlance]] = {}
    for run in found.runs:
        runs.setdefault(run.code, []).append(run)
    names = {code: plain(code)[:_LONGEST_NAME] for code in sorted(runs)}
    width = max(len(name) for name in names.values())
    axis = _axis(found, found.since, width)
    head: list[Piece] = [(f"{'':<{width}}  {axis.labels()}", "")]
    return [head, *([(f"{name:<{width}}  ", ""), *_drawn(runs[code], axis, found)] for code, name in names.items())]


def _of_runs(found: Timeline) -> list[list[Piece]]:
    """Draw a line for each run, newest last, from the first that is shown on."""
    names = [f"{run.at.astimezone(UTC):%m-%d %H:%M:%S}" for run in found.runs]
    says = [plain(_ending(run, found.clock)) for run in found.runs]
    width = max(map(len, names))
    first = max(found.since, min(_begin(run) for run in found.runs))
    axis = _axis(found, min(first, found.until - timedelta(seconds=1)), width + max(map(len, says)) + 2)
    head: list[Piece] = [(f"{'':<{width}}  {axis.labels()}", "")]
    return [
        head,
        *(
            [(f"{name}  ", ""), *_drawn([run], axis, found), (f"  {said}", "")]
            for name, run, said in zip(names, found.runs, says, strict=True)
        ),
    ]


def _axis(found: Timeline, since: datetime, taken: int) -> _Axis:
    width = max(shutil.get_terminal_size((100, 24)).columns - taken - 3, _NARROWEST)
    return _Axis(since, found.until, width)


def _drawn(runs: Sequence[RunGlance], axis: _Axis, found: Timeline) -> list[Piece]:
    """Draw runs on one line: each from its beginning to its end, at least one character."""
    ranks = [-1] * axis.width
    for run in runs:
        rank = _RANK[run.state]
        for place in range(axis.place(_begin(run)), axis.place(_end(run, found.clock)) + 1):
            ranks[place] = max(ranks[place], rank)
    return [_piece(rank, len(list(alike))) for rank, alike in groupby(ranks)]


def _piece(rank: int, length: int) -> Piece:
    mark, style, _ = _MARKS[rank] if rank >= 0 else (".", "dim", ())
    return mark * length, style


def _begin(run: RunGlance) -> datetime:
    return run.started_at or run.created_at


def _end(run: RunGlance, clock: datetime) -> datetime:
    if run.state is RunState.RUNNING:
        return clock
    return max(run.finished_at or run.modified_at, _begin(run)) if run.attempt else _begin(run)


def _ending(run: RunGlance, clock: datetime) -> str:
    """Say how a run stands, how long it took, and where."""
    took = clock - _begin(run) if run.state is RunState.RUNNING else run.duration
    parts = [run.state.value, *([format_duration(took)] if took is not None else []), run.holder or NOTHING]
    return ", ".join(parts)
