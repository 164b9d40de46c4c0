"""How long, how many, how fast: the figures of a run, as a value that director and nodes share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

CODE: Final = "chaos"
LEASE_MS: Final = 1_200
HEARTBEAT_MS: Final = 400
LEASE_S: Final = LEASE_MS / 1_000
WORK_S: Final = (0.05, 0.6)
LONG_WORK_S: Final = 1.8 * LEASE_S
"""What one job in ten takes: it lives only by being renewed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Say what is played; the same seed gives the same faults in the same order, not the same race."""

    seed: int
    nodes: int = 4
    faults_s: float = 20.0
    calm_s: float = 15.0
    every_s: float = 0.25

    @property
    def ticks(self) -> int:
        """Give how many ticks fall due while faults are made."""
        return round(self.faults_s / self.every_s)

    def due_s(self, tick: int) -> float:
        """Give when a tick is due, in seconds from the start."""
        return tick * self.every_s

    @classmethod
    def quick(cls, seed: int) -> Plan:
        """Give a run that ends within 40 s."""
        return cls(seed)

    @classmethod
    def full(cls, seed: int) -> Plan:
        """Give a run of five minutes."""
        return cls(seed, faults_s=270.0, calm_s=30.0)

    def to_text(self) -> str:
        """Write the plan as JSON, for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Plan:
        """Read what `to_text` wrote."""
        return cls(**json.loads(text))


def run_key(tick: int) -> str:
    """Name the run of a tick."""
    return f"tick {tick:04}"


def is_async(node: int) -> bool:
    """Say whether a node uses the async service: every second one does."""
    return node % 2 == 1
