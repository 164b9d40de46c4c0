"""What the verbs that read print: tables on a terminal, aligned lines in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from tenure import JobNotAcquired, NotAcquiredReason, RunRecord
from tenure.cli.errors import OutputError, plain
from tenure.durations import format_duration

COLUMNS = ("STATUS", "CODE", "RUN KEY", "ATTEMPT", "HOLDER", "BEGAN", "THEN", "OUTCOME", "TICK", "PROGRESS", "ID")
_STYLES = {
    "RUNNING": "yellow",
    "SUCCESS": "green",
    "FAIL": "red",
    "overdue": "bold red",
    "exhausted": "red",
    "orphaned": "red",
    "failing": "yellow",
    "paused": "cyan",
    "bad": "bold red",
    "warn": "yellow",
    "ok": "green",
}
NOTHING = "-"

Piece: TypeAlias = tuple[str, str]
"""A text and its style."""


def emit(text: str) -> None:
    """Write text to stdout at once; raises `OutputError` if nobody takes it."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(error) from None


def emit_json(value: Any, *, indent: int | None = 2) -> None:
    """Write JSON in ASCII, so that no terminal takes a part of it for a command; without an indent, on one line."""
    emit(json.dumps(value, indent=indent))


def emit_runs(runs: Sequence[RunRecord], now: datetime) -> None:
    """Write one line a run; the columns for outcome, tick and progress are there if a run has more to say there."""
    said = {
        "OUTCOME": any(run.outcome or run.retry_at for run in runs),
        "TICK": any(_tick_beside_key(run) for run in runs),
        "PROGRESS": any(run.progress for run in runs),
    }
    shown = [number for number, title in enumerate(COLUMNS) if said.get(title, True)]
    rows = [tuple(row[number] for number in shown) for row in [COLUMNS, *(_cells(run, now) for run in runs)]]
    emit_table(rows)


def emit_table(rows: Sequence[Sequence[str]]) -> None:
    """Write titles and lines: a table on a terminal, aligned in a pipe. Cells must be plain."""
    if sys.stdout.isatty():
        _emit_rich(rows)
    else:
        emit("\n".join(_aligned(rows)))


def style_of(word: str) -> str:
    """Give the style in which a terminal shows a state, a health or a level; none for what is neither good nor bad."""
    return _STYLES.get(word, "")


def emit_pieces(lines: Sequence[Sequence[Piece]]) -> None:
    """Write lines of pieces of text, each in its style on a terminal, and never wrapped. Pieces must be plain."""
    if not sys.stdout.isatty():
        return emit("\n".join("".join(text for text, _ in line).rstrip() for line in lines))
    from rich.console import Console
    from rich.text import Text

    try:
        for line in lines:
            Console().print(Text.assemble(*line), soft_wrap=True, highlight=False)
    except OSError as error:
        raise OutputError(error) from None
    return None


def run_as_json(run: RunRecord) -> dict[str, Any]:
    """Give a run under stable snake_case keys, instants in ISO 8601 UTC."""
    return {
        "id": str(run.id),
        "idempotency_key": run.idempotency_key,
        "type": run.type.value,
        "code": run.code,
        "run_key": run.run_key,
        "name": run.name,
        "status": run.status.value,
        "attempt": run.attempt,
        "fencing_token": run.fencing_token,
        "holder": run.holder,
        "lease_ms": run.lease_ms,
        "lease_left_ms": None if run.lease_left is None else run.lease_left // timedelta(milliseconds=1),
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "modified_at": iso(run.modified_at),
        "finished_at": iso(run.finished_at),
        "data": run.data,
        "checkpoint": run.checkpoint,
        "checkpointed_at": iso(run.checkpointed_at),
        "scheduled_at": iso(run.scheduled_at),
        "outcome": run.outcome,
        "retry_at": iso(run.retry_at),
    }


def when(instant: datetime | None, now: datetime) -> str:
    """Give an instant in UTC, and how far it is from now by this machine's clock."""
    if instant is None:
        return NOTHING
    distance = format_duration(now - instant)
    relative = f"{distance} ago" if instant <= now else f"in {distance}"
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%SZ} ({relative})"


def when_here(instant: datetime | None, now: datetime) -> str:
    """Give an instant in UTC, by this machine's zone where that differs, and how far it is from now."""
    if instant is None:
        return NOTHING
    try:
        here = instant.astimezone()
    except OverflowError:
        here = instant
    said = when(instant, now)
    if not here.utcoffset():
        return said
    utc, distance = said.split(" (", 1)
    day = "" if utc.startswith(f"{here:%Y-%m-%d}") else f"{here:%Y-%m-%d} "
    return f"{utc} = {day}{here:%H:%M:%S%z} ({distance}"


def why_not(answer: JobNotAcquired, now: datetime) -> str:
    """Say in a clause why a run was not acquired (C4.4)."""
    holder = answer.holder or "another node"
    if answer.reason is NotAcquiredReason.SUCCEEDED:
        return f"was done at {when(answer.finished_at, now)} by {holder}, attempt {answer.attempt}"
    if answer.reason is NotAcquiredReason.RUNNING:
        return (
            f"is held by {holder} since {when(answer.since, now)}, attempt {answer.attempt}; "
            f"unless renewed, its lease expires at {when(answer.expires_at, now)}"
        )
    if answer.reason is NotAcquiredReason.REMOVED:
        return "was decided before: its row was removed, or the job was not known then"
    return "is just being taken by another node"


def iso(instant: datetime | None) -> str | None:
    """Give an instant as it stands in JSON: ISO 8601, UTC, milliseconds."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cells(run: RunRecord, now: datetime) -> tuple[str, ...]:
    cells = (
        run.status.value,
        run.code,
        NOTHING if run.run_key is None else run.run_key,
        str(run.attempt),
        run.holder or NOTHING,
        when(run.started_at, now),
        _then(run),
        _outcome(run, now),
        NOTHING if (tick := _tick_beside_key(run)) is None else when(tick, now),
        progress_of(run),
        str(run.id),
    )
    return tuple(plain(cell) for cell in cells)


def _then(run: RunRecord) -> str:
    """Say how much of the lease is left, or how long the last attempt took."""
    if run.lease_left is not None:
        return lease_left(run.lease_left)
    if run.started_at is None or run.finished_at is None:
        return NOTHING
    return f"ended after {format_duration(run.finished_at - run.started_at)}"


def _outcome(run: RunRecord, now: datetime) -> str:
    """Say how it ended in detail, and when it is tried again."""
    if run.retry_at is None:
        return run.outcome or NOTHING
    due = "now" if run.retry_at <= now else f"in {format_duration(run.retry_at - now)}"
    return f"{run.outcome or 'failed'}, retry {due}"


def _tick_beside_key(run: RunRecord) -> datetime | None:
    """Give the tick if the run's key does not say it."""
    return None if run.scheduled_at is None or iso(run.scheduled_at) == run.run_key else run.scheduled_at


def progress_of(run: RunRecord) -> str:
    """Say how much is done; 100 % is said only of all."""
    if run.progress is None:
        return NOTHING
    done, of = run.progress
    return f"{done:,}/{of:,} {done * 100 // of} %"


def lease_left(left: timedelta) -> str:
    """Say how much of a lease is left, or since when it has expired."""
    shown = format_duration(left)
    return f"expired {shown} ago" if left < timedelta(0) else f"{shown} left"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _emit_rich(rows: Sequence[Sequence[str]]) -> None:
    """Write a table as wide as the terminal: titles, then lines; long cells go on below, none is read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    titles, *lines = rows
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in lines:
        first, *rest = (Text(cell) for cell in row)
        first.stylize(style_of(row[0]))
        table.add_row(first, *rest)
    try:
        Console().print(table)
    except OSError as error:
        raise OutputError(error) from None
