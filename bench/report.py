"""Show what was measured, and keep it."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from typing import Final

from bench.measure import Line

RESULTS: Final = Path(__file__).parent / "results"
_TITLES: Final = ("measure", "value", "beside", "ratio", "target", "")
_WIDTHS: Final = (34, 36, 38, 6, 24, 7)


def table(lines: Sequence[Line]) -> str:
    """Lay the lines out for a terminal, long cells wrapped."""
    head = _row(_TITLES)
    return "\n".join([head, "-" * len(head.rstrip()), *(_row(_cells(line)) for line in lines)])


def write(name: str, facts: Mapping[str, str], lines: Sequence[Line]) -> Path:
    """Keep the lines of one family as JSON."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {**facts, "lines": [line.document() for line in lines]}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def facts(server_version: str, *, quick: bool) -> dict[str, str]:
    """Say where and when it was measured."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "effort": "quick" if quick else "full",
        "server": f"PostgreSQL {server_version}, fsync and synchronous_commit on",
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, {sys.platform}, load {load} at the start",
    }


def _cells(line: Line) -> tuple[str, ...]:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    return line.measure, line.value, line.beside, ratio, line.target, line.verdict


def _row(cells: Sequence[str]) -> str:
    columns = [wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=True)]
    height = max(map(len, columns))
    return "\n".join(
        "  ".join(
            (column[n] if n < len(column) else "").ljust(width) for column, width in zip(columns, _WIDTHS, strict=True)
        ).rstrip()
        for n in range(height)
    )
