"""Make faults, drawn by a seeded random, one after another; then calm, in which the nodes must come to an end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from tenure.embedded import EmbeddedPostgres
from tests.chaos import tables
from tests.chaos.crew import Crew, Member
from tests.chaos.plan import LEASE_S, Plan

Mend = Callable[[], None]


@dataclass(slots=True)
class Director:
    """Strike the crew and the server. `faults` counts what was done, by kind."""

    server: EmbeddedPostgres
    url: str
    crew: Crew
    plan: Plan
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Make faults for their time, the restart of the server among them, then wait for the end."""
        dice = random.Random(self.plan.seed)
        ends_s = time.monotonic() + self.plan.faults_s
        restart_s = ends_s - self.plan.faults_s * dice.uniform(0.3, 0.7)
        mends: list[tuple[float, Member, Mend]] = []
        while (now_s := time.monotonic()) < ends_s:
            mends = self._mend(mends, now_s)
            if now_s >= restart_s and not self.faults["server restarted"]:
                self._restart_server()
            hurt = {member.number for _, member, _ in mends}
            sound = [member for member in self.crew.members if member.number not in hurt]
            if sound and len(hurt) < self.plan.nodes - 1:
                mends.append(self._strike(dice, dice.choice(sound)))
            time.sleep(dice.uniform(0.1, 0.5))
        self._mend(mends, float("inf"))
        self._wait_for_the_end()

    @property
    def counts(self) -> dict[str, int]:
        """Give how often each kind of fault was made, those never made included."""
        return {kind: self.faults[kind] for kind in (*self._kinds(), "server restarted")}

    def _kinds(self) -> dict[str, Callable[[Member], tuple[float, Mend]]]:
        """Give each kind of fault: a function that makes it, and says for how long, and how it is mended."""
        return {
            "killed": self._kill,
            "stopped": self._stop,
            "backends terminated": self._terminate,
            "connections reset": self._reset,
            "black-holed": self._black_hole,
            "black-holed, then reset": self._black_hole_and_reset,
        }

    def _strike(self, dice: random.Random, member: Member) -> tuple[float, Member, Mend]:
        kind, fault = dice.choice(list(self._kinds().items()))
        leases, mend = fault(member)
        self.faults[kind] += 1
        return time.monotonic() + leases * LEASE_S * dice.uniform(0.5, 1.2), member, mend

    def _mend(self, mends: list[tuple[float, Member, Mend]], now_s: float) -> list[tuple[float, Member, Mend]]:
        for due_s, _, mend in mends:
            if due_s <= now_s:
                mend()
        return [waiting for waiting in mends if waiting[0] > now_s]

    def _kill(self, member: Member) -> tuple[float, Mend]:
        self.crew.kill(member)
        return 0.5, lambda: self.crew.start(member)

    def _stop(self, member: Member) -> tuple[float, Mend]:
        self.crew.stop(member)
        return 2.0, lambda: self.crew.wake(member)

    def _terminate(self, member: Member) -> tuple[float, Mend]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                [member.application],
            )
        return 0.2, _nothing

    def _reset(self, member: Member) -> tuple[float, Mend]:
        member.proxy.reset_all()
        return 0.2, _nothing

    def _black_hole(self, member: Member) -> tuple[float, Mend]:
        member.proxy.black_hole()
        return 1.5, member.proxy.heal

    def _black_hole_and_reset(self, member: Member) -> tuple[float, Mend]:
        member.proxy.black_hole()

        def mend() -> None:
            member.proxy.reset_all()
            member.proxy.heal()

        return 1.5, mend

    def _restart_server(self) -> None:
        self.server.restart("immediate")
        self.faults["server restarted"] += 1

    def _wait_for_the_end(self) -> None:
        """Wait until every tick has succeeded; what has not by then is the verdict's to tell."""
        until_s = time.monotonic() + self.plan.calm_s
        while tables.succeeded(self.url) < self.plan.ticks and time.monotonic() < until_s:
            time.sleep(0.2)
        self.problems += self.crew.fallen()


def _nothing() -> None:
    pass
