"""`tenure doctor`: whether a database is fit for tenure, and the mend where it is not."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

import click

from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, plain
from tenure.cli.output import Piece, emit_json, emit_pieces, style_of
from tenure.operating import Finding, Level, examination, worst

_INDENT = 6
_NARROWEST = 40


@click.command(
    epilog="""\b
It changes nothing, and opens a few connections of its own.
Examples:
  tenure doctor
  tenure doctor --json | jq '.[] | select(.level != "ok")'
Exit codes: 0 nothing is bad, though there may be warnings; 1 something is."""
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@connection_options
def doctor(*, connection: Connection, as_json: bool) -> int:
    """Examine server, schema, grants, pooler, clocks, time zones and tables: what, why it matters, the mend."""
    with connection.service() as service:
        found = service.examine(examination.look)
    if as_json:
        emit_json([_as_json(finding) for finding in found])
    else:
        _emit(found)
    return ExitCode.NEGATIVE if worst(found) is Level.BAD else ExitCode.OK


def _emit(found: Sequence[Finding]) -> None:
    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    emit_pieces([line for finding in found for line in _lines(finding, width)])
    counts = {level: sum(finding.level is level for finding in found) for level in Level}
    emit_pieces([[], [(f"{counts[Level.BAD]} bad, {counts[Level.WARN]} to look at, {counts[Level.OK]} well", "")]])


def _lines(finding: Finding, width: int) -> list[list[Piece]]:
    level = finding.level.value
    head: list[Piece] = [(f"{level:<{_INDENT}}", style_of(level)), (plain(f"{finding.subject}: {finding.found}"), "")]
    said = [finding.why] + ([f"Mend: {finding.mend}"] if finding.mend else [])
    return [head, *([(line, "")] for text in said for line in _wrapped(plain(text), width))]


def _wrapped(text: str, width: int) -> list[str]:
    indent = " " * _INDENT
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def _as_json(finding: Finding) -> dict[str, str | None]:
    return {
        "level": finding.level.value,
        "subject": finding.subject,
        "found": finding.found,
        "why": finding.why,
        "mend": finding.mend,
    }
