"""What is measured, as values: samples of a batch, medians over repeats, and lines of the report.

Machines are shared and noisy, so nothing here trusts one run: the cases that are compared take turns, and medians of
their repeats are set beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, TypeVar

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True)
class Sample:
    """Hold what one operation took: microseconds of time and of CPU, and bytes of WAL.

    `None` stands for what was not looked at, or cannot be on this platform.
    """

    wall_us: float
    client_cpu_us: float | None = None
    server_cpu_us: float | None = None
    wal_bytes: float | None = None

    @property
    def per_second(self) -> float:
        """Give the rate at which one caller goes on."""
        return 1e6 / self.wall_us


@dataclass(frozen=True, slots=True)
class Line:
    """Hold one line of the report.

    `ratio` is what the target speaks of, and `reached` says whether it is met; `None` if there is no target to meet.
    `wrong` says that a figure is not slow but false: two winners of one tick, say.
    """

    measure: str
    value: str
    beside: str
    ratio: float | None
    target: str
    reached: bool | None = None
    wrong: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Give the word for the last column."""
        if self.wrong:
            return "WRONG"
        return {True: "reached", False: "MISSED", None: ""}[self.reached]

    def document(self) -> dict[str, Any]:
        """Give everything in it, as JSON has it."""
        return {**asdict(self), "verdict": self.verdict}


def interleaved(cases: Mapping[K, Callable[[], Sample]], repeats: int) -> dict[K, Sample]:
    """Run the cases in turn, each second round backwards, and give the medians of each."""
    taken: dict[K, list[Sample]] = {name: [] for name in cases}
    for number in range(repeats):
        for name in list(cases)[:: 1 if number % 2 == 0 else -1]:
            taken[name].append(cases[name]())
    return {name: middle(samples) for name, samples in taken.items()}


def middle(samples: Sequence[Sample]) -> Sample:
    """Give the median of each field by itself."""
    return Sample(
        median(sample.wall_us for sample in samples),
        _middle([sample.client_cpu_us for sample in samples]),
        _middle([sample.server_cpu_us for sample in samples]),
        _middle([sample.wal_bytes for sample in samples]),
    )


def added(first: Sample, second: Sample) -> Sample:
    """Give what two operations take one after the other."""
    return Sample(
        first.wall_us + second.wall_us,
        _sum(first.client_cpu_us, second.client_cpu_us),
        _sum(first.server_cpu_us, second.server_cpu_us),
        _sum(first.wal_bytes, second.wal_bytes),
    )


def shown(sample: Sample) -> str:
    """Write a sample in one cell."""
    parts = [f"{sample.per_second:,.0f}/s"]
    if sample.client_cpu_us is not None:
        parts.append(f"cpu {sample.client_cpu_us:,.0f}+{_number(sample.server_cpu_us)} µs")
    if sample.wal_bytes is not None:
        parts.append(f"{sample.wal_bytes:,.0f} B")
    return ", ".join(parts)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
