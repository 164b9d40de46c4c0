"""`tenure why`: why a tick did or did not run."""

from __future__ import annotations

from typing import Any

import click

from tenure.cli.asking import ask
from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, plain
from tenure.cli.lives import action_as_json, glance_as_json
from tenure.cli.moments import find_tick
from tenure.cli.options import code_argument, read_text
from tenure.cli.output import emit, emit_json, iso, when_here
from tenure.operating import Why, WhyVerdict, explain, operations


@click.command(
    epilog="""\b
TICK is an instant (2026-07-20T03:00:00Z), the last time that clocks in the
job's zone showed a time (03:00), or `last` or `next`, by its schedule.
Examples:
  tenure why report 03:00
  tenure why report last --json | jq -r .verdict
Exit codes: 0 answered, whatever the answer; 1 there is no such job."""
)
@code_argument()
@click.argument("tick", metavar="TICK", callback=read_text)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@connection_options
def why(*, connection: Connection, code: str, tick: str, as_json: bool) -> int:
    """Say why a tick did or did not run, and what to do."""
    with connection.service() as service:
        meant = find_tick(service, code, tick, times=True)
        answer = explain(ask(service, operations.tick_facts, code, meant.tick))
    if as_json:
        emit_json(_as_json(answer))
    else:
        _emit(answer)
    return ExitCode.NEGATIVE if answer.verdict is WhyVerdict.UNKNOWN_JOB else ExitCode.OK


def _emit(answer: Why) -> None:
    known = answer.facts
    lines = [f"{known.code} {when_here(known.tick, known.clock)}: {answer.verdict.value}", "", *answer.sentences]
    lines += ["", "What to do:", *(f"  {advice}" for advice in answer.advice)] if answer.advice else []
    near = [
        f"{name} tick  {when_here(tick, known.clock)}"
        for name, tick in (("Previous", answer.previous_tick), ("Next", answer.next_tick))
        if tick is not None
    ]
    lines += ["", *near] if near else []
    lines += [f"Its run: tenure show {known.run.id}"] if known.run else []
    emit("\n".join(plain(line) for line in lines))


def _as_json(answer: Why) -> dict[str, Any]:
    known = answer.facts
    return {
        "code": known.code,
        "tick": iso(known.tick),
        "clock": iso(known.clock),
        "verdict": answer.verdict.value,
        "ran": answer.ran,
        "sentences": list(answer.sentences),
        "advice": list(answer.advice),
        "previous_tick": iso(answer.previous_tick),
        "next_tick": iso(answer.next_tick),
        "run": glance_as_json(known.run) if known.run else None,
        "actions": [action_as_json(action) for action in known.actions],
    }
