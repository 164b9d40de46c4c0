"""Play the demo: start the nodes, strike two of them, and watch until every tick is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tenure import JobSchedulerService, JobSchedulerStatus, RunRecord
from tenure.demo.crew import Crew, Member, NodeState
from tenure.demo.plan import Plan
from tenure.demo.scene import Scene
from tenure.demo.stage import DemoError, Stage
from tenure.demo.tables import CODE, Effect, Event, EventKind, Tables, Tick
from tenure.demo.verdict import Verdict, gather, judge

LOOK_EVERY_S: Final = 0.05
START_LIMIT_S: Final = 30.0
OVERTIME_S: Final = 20.0
"""How long after the last tick is due the demo may take to get all ticks done."""
OVERLAP: Final = 100
FIRST_STEP: Final = 2
PATIENCE_TICKS: Final = 2
"""After so many ticks any node will do, if the one that the plan names wins nothing."""

Show = Callable[[Scene], None]


def play(stage: Stage, plan: Plan, show: Show) -> Verdict:
    """Play the demo and judge it. No node is left, however this ends. Raises `TenureError`."""
    with (
        JobSchedulerService(stage.url, schema=stage.schema, owner_label="director") as service,
        Tables.open(stage.url, stage.schema) as tables,
        Crew(stage, plan) as crew,
    ):
        Director(plan, crew, tables, service, show).direct()
        crew.end(gently=True)
        return judge(gather(tables, service))


class Director:
    """Watch the database, and strike when a node is seen in the middle of a run."""

    def __init__(self, plan: Plan, crew: Crew, tables: Tables, service: JobSchedulerService, show: Show) -> None:
        self._plan = plan
        self._crew = crew
        self._tables = tables
        self._service = service
        self._show = show
        self._ticks: list[Tick] = []
        self._events: list[Event] = []
        self._seen: set[int] = set()
        self._runs: dict[str, RunRecord] = {}
        self._struck: dict[EventKind, Effect] = {}
        self._is_woken = False

    def direct(self) -> None:
        """Go on until every tick is done and both faults are survived, or the time is up."""
        for _ in range(self._plan.nodes):
            self._crew.start()
        self._watch_until(self._all_up, START_LIMIT_S, "The nodes did not start in time.")
        self._ticks = self._tables.schedule(self._plan.ticks)
        self._watch_until(self._is_over, self._plan.ticks + OVERTIME_S)
        self._look()

    def _watch_until(self, over: Callable[[], bool], limit_s: float, complaint: str | None = None) -> None:
        until_s = time.monotonic() + limit_s
        while not over():
            if time.monotonic() > until_s:
                if complaint:
                    raise DemoError(complaint)
                return
            time.sleep(LOOK_EVERY_S)
            self._look()
            self._crew.check()
            self._strike_if_due()
            self._wake_if_due()

    def _all_up(self) -> bool:
        return len(self._crew.working()) >= self._plan.nodes

    def _is_over(self) -> bool:
        done = sum(run.status is JobSchedulerStatus.SUCCESS for run in self._runs.values())
        protested = any(event.kind is EventKind.PROTESTED for event in self._events)
        waits = self._is_woken and not protested
        return done == len(self._ticks) and not waits

    def _look(self) -> None:
        # An event may be committed after one with a larger id, so the last ones are read again.
        latest = max(self._seen, default=0)
        news = [event for event in self._tables.events(latest - OVERLAP) if event.id not in self._seen]
        self._seen.update(event.id for event in news)
        self._events += news
        self._runs = {
            run.run_key: run for run in self._service.list_runs(code=CODE, limit=self._plan.ticks + 1) if run.run_key
        }
        for event in news:
            if event.kind is EventKind.READY:
                self._crew.members[event.node].state = NodeState.UP
        nodes = {name: member.state for name, member in self._crew.members.items()}
        self._show(Scene(nodes, self._ticks, self._runs, self._events, news))

    def _strike_if_due(self) -> None:
        if EventKind.KILLED not in self._struck:
            self._strike(EventKind.KILLED, self._plan.kill_tick, self._plan.kill_node)
        elif EventKind.STOPPED not in self._struck:
            self._strike(EventKind.STOPPED, self._plan.stop_tick, self._plan.stop_node)

    def _strike(self, fault: EventKind, tick: int, node: int) -> None:
        """Stop the node that is in mid-run, make sure that it still is, and only then let it be the fault."""
        victim = self._in_mid_run(tick, node)
        if victim is None or len(self._crew.working()) < 2:
            return
        member, effect = victim
        before = member.state
        self._crew.stop(member)
        if not self._is_running(effect):
            self._crew.wake(member, before)
            return
        if fault is EventKind.KILLED:
            self._crew.kill(member)
        self._struck[fault] = effect
        self._tables.report(member.name, fault, effect)
        self._replace_if_needed(member)

    def _in_mid_run(self, tick: int, node: int) -> tuple[Member, Effect] | None:
        numbers = {tick.run_key: tick.number for tick in self._ticks}
        anybody_from = min(tick + PATIENCE_TICKS, self._plan.ticks)
        for event in reversed(self._events):
            number = numbers.get(event.run_key or "", 0)
            wanted = number >= tick and (event.node == f"node-{node}" or number >= anybody_from)
            if event.kind is EventKind.BATCH and wanted and int(event.detail.partition("/")[0]) >= FIRST_STEP:
                effect = Effect(event.run_key or "", event.attempt or 0, event.fencing_token or 0, event.node)
                member = self._crew.members[event.node]
                run = self._runs.get(effect.run_key)
                if member.is_working and run is not None and _is_held(run, effect):
                    return member, effect
        return None

    def _is_running(self, effect: Effect) -> bool:
        run = self._service.find_run(self._runs[effect.run_key].id)
        return run is not None and _is_held(run, effect)

    def _replace_if_needed(self, member: Member) -> None:
        """Start another node where only one would be left, as whatever watches over a real service would."""
        if member.state is NodeState.KILLED and len(self._crew.working()) < 2:
            self._tables.report(member.name, EventKind.REPLACED, detail=self._crew.start().name)

    def _wake_if_due(self) -> None:
        """Wake the stopped node once another is at work on its run, with the fence raised."""
        effect = self._struck.get(EventKind.STOPPED)
        if effect is None or self._is_woken or not self._is_taken_over(effect):
            return
        self._is_woken = True
        self._tables.report(effect.node, EventKind.WOKEN, effect)
        self._crew.wake(self._crew.members[effect.node], NodeState.WOKEN)

    def _is_taken_over(self, effect: Effect) -> bool:
        at_work = (EventKind.BATCH, EventKind.LOADED, EventKind.FOUND_LOADED)
        return any(
            event.kind in at_work and event.run_key == effect.run_key and (event.attempt or 0) > effect.attempt
            for event in self._events
        )


def _is_held(run: RunRecord, effect: Effect) -> bool:
    return run.status is JobSchedulerStatus.RUNNING and run.fencing_token == effect.fencing_token
