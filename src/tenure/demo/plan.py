"""Who fails when: a pure value made from a seed, the same in the director and in every node."""

from __future__ import annotations

import random
from dataclasses import dataclass

LEASE_MS = 1_800
BATCHES = 5
BATCH_PAUSE_S = 0.13
"""A run takes about 0.7 s, so that there is a middle of it to fail in."""

MIN_NODES, MAX_NODES = 2, 12
MIN_TICKS, MAX_TICKS = 5, 600
HEAD_START_S = 0.12


@dataclass(frozen=True, slots=True)
class Plan:
    """Say how many nodes and ticks there are, and which of them are struck.

    Nodes and ticks are counted from 1. A tick has a favourite, which asks first while the others wait a moment: the
    same seed lets the same nodes fail at the same ticks, unless the machine is too busy for it.
    """

    nodes: int
    ticks: int
    seed: int

    @property
    def kill_tick(self) -> int:
        """Give the first tick in which a node may be killed."""
        return 2 + self._draw("kill tick", max(1, self.ticks // 4))

    @property
    def stop_tick(self) -> int:
        """Give the first tick in which a node may be stopped; later than the kill, and with time left to take over."""
        earliest = self.kill_tick + 2
        return earliest + self._draw("stop tick", max(1, self.ticks - 2 - earliest))

    @property
    def kill_node(self) -> int:
        """Give the node that is to be killed."""
        return 1 + self._draw("kill node", self.nodes)

    @property
    def stop_node(self) -> int:
        """Give the node that is to be stopped: another one."""
        step = 1 + self._draw("stop node", self.nodes - 1)
        return 1 + (self.kill_node - 1 + step) % self.nodes

    def favourite(self, tick: int) -> int:
        """Give the node that asks first for that tick."""
        fixed = {self.kill_tick: self.kill_node, self.stop_tick: self.stop_node}
        return fixed.get(tick) or 1 + self._draw(f"tick {tick}", self.nodes)

    def patience_s(self, node: int, tick: int) -> float:
        """Say how long after it is due that node lets a tick lie."""
        return 0.0 if node == self.favourite(tick) else HEAD_START_S

    def _draw(self, what: str, below: int) -> int:
        return random.Random(f"{self.seed} {what}").randrange(below)
