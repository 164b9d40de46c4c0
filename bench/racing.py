"""Processes that race for the same ticks: exactly one winner each, and what losing costs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import median
from typing import IO, Final

from bench.measure import Line, Sample, interleaved
from bench.scene import TABLE, Scene

URL_VARIABLE: Final = "TENURE_DATABASE_URL"


@dataclass(frozen=True, slots=True)
class Race:
    """Hold the outcome of one race."""

    seconds: float
    winners: int
    recorded: int


def run(scene: Scene) -> list[Line]:
    """Race 1, 2, 4 … processes, the numbers taking turns."""
    races: dict[str, list[Race]] = {str(nodes): [] for nodes in scene.effort.contenders}
    numbers = count()

    def race(nodes: str) -> Sample:
        found = _race(scene, int(nodes), f"race-{next(numbers)}")
        races[nodes].append(found)
        return Sample(found.seconds * 1e6)

    cases: dict[str, Callable[[], Sample]] = {nodes: partial(race, nodes) for nodes in races}
    interleaved(cases, max(5, scene.effort.repeats // 3))
    alone_s = median(race.seconds for race in races["1"])
    return [_line(int(nodes), found, alone_s, scene.effort.ticks) for nodes, found in races.items()]


def _line(nodes: int, races: list[Race], alone_s: float, ticks: int) -> Line:
    seconds = median(race.seconds for race in races)
    exact = all(race.winners == race.recorded == ticks for race in races)
    ratio = seconds / alone_s
    winners = sorted({race.winners for race in races})
    return Line(
        f"{nodes} process(es) race for {ticks:,} ticks",
        f"{seconds:.2f} s, winners {', '.join(f'{n:,}' for n in winners)} in {len(races)} races",
        f"1 process {alone_s:.2f} s",
        ratio,
        f"exactly {ticks:,} winners; < {nodes} times" if nodes > 1 else f"exactly {ticks:,} winners",
        exact and (nodes == 1 or ratio < nodes),
        wrong=not exact,
    )


def _race(scene: Scene, nodes: int, code: str) -> Race:
    """Start the processes, send them off at once, and count their wins and the rows."""
    ticks = scene.effort.ticks
    runners = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.racer", code, str(ticks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, URL_VARIABLE: scene.url},
        )
        for _ in range(nodes)
    ]
    try:
        for runner in runners:
            assert _pipe(runner.stdout).readline() == "ready\n", "the runner is at the start"
        for runner in runners:
            _pipe(runner.stdin).write("go\n")
            _pipe(runner.stdin).flush()
        told = [_pipe(runner.stdout).readline().split() for runner in runners]
    finally:
        for runner in runners:
            runner.kill()
            runner.communicate()
    recorded = scene.value(
        f'SELECT count(*) FROM {TABLE} WHERE "code" = %s AND "status" = \'SUCCESS\' AND "attempt" = 1', code
    )
    return Race(max(float(seconds) for _, seconds in told), sum(int(wins) for wins, _ in told), recorded)


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None, "it was opened as a pipe"
    return stream
