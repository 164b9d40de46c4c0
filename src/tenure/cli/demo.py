"""`tenure demo`: nodes that fail, and a verdict from the database."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import click

from tenure.cli.connection import VARIABLES
from tenure.cli.errors import ExitCode
from tenure.cli.output import emit, emit_json
from tenure.demo.plan import MAX_NODES, MAX_TICKS, MIN_NODES, MIN_TICKS, Plan

_SEEDS = 10_000


def _check_nodes(_context: click.Context, _parameter: click.Parameter, nodes: int) -> int:
    if nodes < MIN_NODES:
        raise click.BadParameter("the demo kills a node, and another must take over. Give 2 or more.")
    if nodes > MAX_NODES:
        raise click.BadParameter(f"each is a process of its own. Give at most {MAX_NODES}.")
    return nodes


@click.command(
    epilog="""\b
Examples:
  tenure demo
  tenure demo --nodes 5 --ticks 30"""
)
@click.option(
    "--nodes",
    type=int,
    metavar="INTEGER",
    callback=_check_nodes,
    default=3,
    show_default=True,
    help="How many node processes. One alone has nobody to take over from it; of two, the killed one is replaced.",
)
@click.option(
    "--ticks",
    type=click.IntRange(MIN_TICKS, MAX_TICKS),
    default=10,
    show_default=True,
    help="How many ticks, one a second.",
)
@click.option("--seed", type=int, help="Which nodes fail in which ticks; left out: drawn, and said at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print nothing but one JSON object, at the end.")
@click.option(
    "--database-url",
    metavar="URL",
    envvar=list(VARIABLES),
    help="PostgreSQL to use, in a schema of the demo's own that is dropped at the end; left out: "
    "$TENURE_DATABASE_URL, $DATABASE_URL, else a server is started for the demo.",
)
def demo(*, nodes: int, ticks: int, seed: int | None, as_json: bool, database_url: str | None) -> int:
    """Let nodes share a schedule, kill one, freeze another, and see each tick done once.

    Exit codes: 0 if nothing was doubled or lost and both faults were survived, else 1; 69 if there is no database.
    """
    plan = Plan(nodes, ticks, random.randrange(_SEEDS) if seed is None else seed)
    with _ended_by_signals():
        return _play_as_json(plan, database_url) if as_json else _play_for_people(plan, database_url)


def _play_as_json(plan: Plan, url: str | None) -> int:
    from tenure.demo import director, stage

    began_s = time.monotonic()
    with stage.set_stage(url) as where:
        verdict = director.play(where, plan, lambda _: None)
    given = {"nodes": plan.nodes, "ticks": plan.ticks, "seed": plan.seed}
    emit_json({**given, "server": where.described, "seconds": _since(began_s), **verdict.document()})
    return ExitCode.OK if verdict.ok else ExitCode.NEGATIVE


def _play_for_people(plan: Plan, url: str | None) -> int:
    from tenure.demo import director, show, stage

    began_s = time.monotonic()
    emit("\n".join([*show.opening(plan), ""]))
    with stage.set_stage(url) as where:
        emit(f"{where.described}; seed {plan.seed}")
        with show.on_stdout(emit) as showing:
            verdict = director.play(where, plan, showing)
    emit("\n".join(["", *show.closing(verdict, plan, _since(began_s))]))
    return ExitCode.OK if verdict.ok else ExitCode.NEGATIVE


def _since(began_s: float) -> float:
    return round(time.monotonic() - began_s, 1)


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """Let a signal end the demo as an exception does, once: clearing away is not to be cut short by a second one."""
    asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # What was ignored when we were started (nohup) stays ignored.
    numbers = [number for number in asking if signal.getsignal(number) is not signal.SIG_IGN]

    def leave(number: int, _frame: object) -> NoReturn:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(ExitCode.SIGNALLED + number)

    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
