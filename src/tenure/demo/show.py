"""Show the demo: a live table on a terminal, plain lines elsewhere. Needs the extra `cli` for the table alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tenure.demo.crew import NodeState
from tenure.demo.plan import LEASE_MS, Plan
from tenure.demo.scene import Line, Scene, lines, recent, say
from tenure.demo.verdict import Takeover, Verdict

Show = Callable[[Scene], None]

NEWS_LINES = 6
OTHER_LINES = 4
LOOK_BACK = 60
"""So many events hold the latest lines of news; most events are too small to be told."""
_NODE_STYLES = {
    NodeState.STARTING: "dim",
    NodeState.UP: "green",
    NodeState.KILLED: "bold red",
    NodeState.STOPPED: "bold yellow",
    NodeState.WOKEN: "green",
}


def opening(plan: Plan) -> list[str]:
    """Say in three lines what will be shown."""
    return [
        f"{plan.nodes} nodes run the same job, due once a second, {plan.ticks} times: each tick must be done once, by "
        "one of them.",
        f"The job loads a day of orders under a lease of {LEASE_MS / 1000:g} s. One node is killed in mid-run, one "
        "frozen past its lease.",
        "Others take their runs over, the late writes of the woken node are refused, and the database gives the "
        "verdict.",
    ]


def closing(verdict: Verdict, plan: Plan, seconds: float) -> list[str]:
    """Say what the database says, and where to go next."""
    winners = ", ".join(f"{node} {count}" for node, count in verdict.winners.items()) or "nobody"
    orders = sum(run.orders for run in verdict.runs)
    refused = ", ".join(write.operation for write in verdict.refused_writes) or "none"
    return [
        "Verdict, from the database",
        f"  ticks           {len(verdict.runs)}, with {orders:,} orders loaded",
        f"  winners         {winners}",
        f"  doubles         {verdict.doubles}",
        f"  lost ticks      {verdict.lost}",
        *_takeover_lines(verdict.takeovers),
        f"  refused writes  {len(verdict.refused_writes)} of the woken node: {refused}",
        *(f"  PROBLEM         {problem}" for problem in verdict.problems),
        _judgement(verdict, seconds),
        "",
        f"The same again: tenure demo --nodes {plan.nodes} --ticks {plan.ticks} --seed {plan.seed}",
        "Where to go next: README.md for five minutes to a first run of your own, docs/explanation/lease.md for what "
        "is promised and what is not.",
    ]


def _judgement(verdict: Verdict, seconds: float) -> str:
    if verdict.ok:
        return f"Every tick was done once, on one node, in spite of both faults ({seconds:.1f} s)."
    return f"NOT as promised, see above ({seconds:.1f} s)."


def _takeover_lines(takeovers: Sequence[Takeover]) -> list[str]:
    if not takeovers:
        return ["  takeovers       none"]
    told = [_tell(takeover) for takeover in takeovers]
    return [f"  {'takeovers' if n == 0 else '':<15} {line}" for n, line in enumerate(told)]


def _tell(takeover: Takeover) -> str:
    after = f", {takeover.seconds:.2f} s after it was {takeover.cause}" if takeover.seconds is not None else ""
    return f"tick {takeover.tick}: {takeover.from_node or 'a node'} -> {takeover.to_node}{after}"


@contextmanager
def on_stdout(write: Callable[[str], None]) -> Generator[Show]:
    """Give the show that suits standard output: a live table on a terminal that can move, plain lines elsewhere."""
    console = Console()
    if sys.stdout.isatty() and not console.is_dumb_terminal:
        with live_show(console) as show:
            yield show
    else:
        yield plain_show(write)


def plain_show(write: Callable[[str], None]) -> Show:
    """Give a show that writes each event as a line, with the seconds since the first tick."""

    def show(scene: Scene) -> None:
        for event in scene.news:
            if said := say(event, scene.ticks):
                write(f"{_since(scene.began_at, event.at):>8}  {said}")

    return show


def _since(began_at: datetime | None, at: datetime) -> str:
    return f"{(at - began_at).total_seconds():.2f} s" if began_at else ""


@contextmanager
def live_show(console: Console) -> Generator[Show]:
    """Give a show that keeps one table up to date on the terminal."""
    with Live(console=console, refresh_per_second=10, transient=False) as live:

        def show(scene: Scene) -> None:
            live.update(_picture(scene, console.height))

        yield show


def _picture(scene: Scene, height: int) -> Group:
    return Group(_nodes(scene), _table(scene, max(height - NEWS_LINES - OTHER_LINES, 3)), _news(scene))


def _nodes(scene: Scene) -> Text:
    text = Text("nodes  ")
    for name, state in scene.nodes.items():
        text.append(f"{name} {state.value}   ", style=_NODE_STYLES[state])
    return text


def _table(scene: Scene, room: int) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("tick", "due (UTC)", "attempt", "holder", "lease left", "outcome"):
        table.add_column(heading, justify="right" if heading in ("tick", "attempt", "lease left") else "left")
    for line in recent(lines(scene), room):
        table.add_row(
            line.tick, line.due, line.attempt, line.holder, line.lease_left, Text(line.outcome, style=_style(line))
        )
    return table


def _style(line: Line) -> str:
    if "mid-run" in line.outcome:
        return "bold red"
    if "takeover" in line.outcome:
        return "bold green"
    return "green" if line.outcome == "loaded" else "yellow"


def _news(scene: Scene) -> Text:
    said = [line for event in scene.events[-LOOK_BACK:] if (line := say(event, scene.ticks))]
    return Text("\n".join(said[-NEWS_LINES:]), style="dim")
