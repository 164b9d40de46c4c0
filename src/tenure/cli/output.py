"""What the verbs that read print: tables on a terminal, aligned lines in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure import RunRecord
from tenure.cli.errors import OutputError, plain
from tenure.durations import format_duration

COLUMNS = ("STATUS", "CODE", "RUN KEY", "ATTEMPT", "HOLDER", "BEGAN", "THEN", "ID")
_STYLES = {"RUNNING": "yellow", "SUCCESS": "green", "FAIL": "red"}
NOTHING = "-"


def emit(text: str) -> None:
    """Write text to stdout at once; raises `OutputError` if nobody takes it."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(error) from None


def emit_json(value: Any) -> None:
    """Write JSON in ASCII, so that no terminal takes a part of it for a command."""
    emit(json.dumps(value, indent=2))


def emit_runs(runs: Sequence[RunRecord], now: datetime) -> None:
    """Write one line a run."""
    rows = [_cells(run, now) for run in runs]
    if sys.stdout.isatty():
        _emit_table(rows)
    else:
        emit("\n".join(_aligned([COLUMNS, *rows])))


def emit_run(run: RunRecord, now: datetime) -> None:
    """Write one line a field, then the data."""
    fields = _fields(run, now)
    width = max(len(name) for name, _ in fields)
    emit("\n".join(f"{name:<{width}}  {plain(value)}" for name, value in fields))


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
        "created_at": _iso(run.created_at),
        "started_at": _iso(run.started_at),
        "modified_at": _iso(run.modified_at),
        "finished_at": _iso(run.finished_at),
        "data": run.data,
    }


def when(instant: datetime | None, now: datetime) -> str:
    """Give an instant in UTC, and how far it is from now by this machine's clock."""
    if instant is None:
        return NOTHING
    distance = format_duration(now - instant)
    relative = f"{distance} ago" if instant <= now else f"in {distance}"
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%SZ} ({relative})"


def _iso(instant: datetime | None) -> str | None:
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
        str(run.id),
    )
    return tuple(plain(cell) for cell in cells)


def _then(run: RunRecord) -> str:
    """Say how much of the lease is left, or how long the last attempt took."""
    if run.lease_left is not None:
        return _lease_left(run.lease_left)
    if run.started_at is None or run.finished_at is None:
        return NOTHING
    return f"ended after {format_duration(run.finished_at - run.started_at)}"


def _lease_left(left: timedelta) -> str:
    shown = format_duration(left)
    return f"expired {shown} ago" if left < timedelta(0) else f"{shown} left"


def _fields(run: RunRecord, now: datetime) -> list[tuple[str, str]]:
    length = NOTHING if run.lease_ms is None else format_duration(timedelta(milliseconds=run.lease_ms))
    left = [] if run.lease_left is None else [("lease left", _lease_left(run.lease_left))]
    return [
        ("id", str(run.id)),
        ("idempotency key", run.idempotency_key),
        ("type", run.type.value),
        ("code", run.code),
        ("run key", NOTHING if run.run_key is None else run.run_key),
        ("name", run.name or NOTHING),
        ("status", run.status.value),
        ("attempt", str(run.attempt)),
        ("fencing token", str(run.fencing_token)),
        ("holder", run.holder or NOTHING),
        ("lease", length),
        *left,
        ("created", when(run.created_at, now)),
        ("began", when(run.started_at, now)),
        ("last sign", when(run.modified_at, now)),
        ("ended", when(run.finished_at, now)),
        ("data", NOTHING if run.data is None else json.dumps(run.data)),
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _emit_table(rows: Sequence[Sequence[str]]) -> None:
    """Write a table as wide as the terminal; a long cell goes on below, none is cut, none is read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for title in COLUMNS:
        table.add_column(title, overflow="fold")
    for row in rows:
        status, *rest = (Text(cell) for cell in row)
        status.stylize(_STYLES[row[0]])
        table.add_row(status, *rest)
    try:
        Console().print(table)
    except OSError as error:
        raise OutputError(error) from None
