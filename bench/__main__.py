"""Run every benchmark: ``python -m bench``, or ``python -m bench --quick`` for an answer within a minute.

Exit code 0 even when a target is missed, which the table says plainly; 1 when a figure is wrong, such as two winners
of one tick; an error ends with its traceback.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from bench import importing, in_flight, one_connection, overview, racing, renewing, report
from bench.measure import Line
from bench.scene import FULL, QUICK, Scene, opened

FAMILIES: Final[dict[str, Callable[[Scene], list[Line]]]] = {
    "one_connection": one_connection.run,
    "in_flight": in_flight.run,
    "renewing": renewing.run,
    "racing": racing.run,
    "overview": overview.run,
    "importing": importing.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the families that are asked for, print the table, keep the figures, and give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure what tenure costs.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats: under a minute")
    parser.add_argument("--only", choices=FAMILIES, nargs="+", default=list(FAMILIES), help="leave the others out")
    given = parser.parse_args(arguments)
    began_s = time.monotonic()
    with opened(QUICK if given.quick else FULL) as scene:
        facts = report.facts(str(scene.value("SHOW server_version")), quick=given.quick)
        lines = [line for name in given.only for line in _measure(name, scene, facts)]
    print("\n".join(f"{name}: {fact}" for name, fact in facts.items()))
    print(f"cpu is of one operation, client+server; B is WAL of one operation\n\n{report.table(lines)}\n")
    print(_summary(lines, time.monotonic() - began_s))
    return int(any(line.wrong for line in lines))


def _measure(name: str, scene: Scene, facts: dict[str, str]) -> list[Line]:
    began_s = time.monotonic()
    lines = FAMILIES[name](scene)
    print(f"measured {name} in {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
    report.write(name, facts, lines)
    return lines


def _summary(lines: Sequence[Line], took_s: float) -> str:
    reached = sum(line.verdict == "reached" for line in lines)
    missed = [line.measure for line in lines if line.verdict == "MISSED"]
    wrong = [line.measure for line in lines if line.wrong]
    said = [f"{reached} targets reached, {len(missed)} MISSED, {len(wrong)} figures wrong, in {took_s:.0f} s."]
    said += [f"MISSED: {measure}" for measure in missed] + [f"WRONG: {measure}" for measure in wrong]
    return "\n".join([*said, "Figures are in bench/results/"])


if __name__ == "__main__":
    sys.exit(main())
