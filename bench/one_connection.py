"""One caller, one connection: acquire and complete, a loss, and `run_exclusive` with nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import psycopg

from bench.bare import BareDriver, Pgbench
from bench.measure import Line, Sample, added, interleaved, shown
from bench.round_trips import Relay
from bench.scene import Scene
from tenure import JobAcquired, JobAcquireOptions, JobLease, JobSchedulerService

_NO_PGBENCH = "pgbench was not found on this machine"


def run(scene: Scene) -> list[Line]:
    """Measure all of it, the cases taking turns."""
    with (
        psycopg.connect(scene.url, autocommit=True) as connection,
        JobSchedulerService(scene.url, owner_label="bench") as service,
    ):
        lines = _Pairs(scene, service, BareDriver(connection)).lines()
        return [*lines, *_Losses(scene, service, BareDriver(connection)).lines()]


class _Pairs:
    """Measure a win and its end, beside an insert and an update."""

    def __init__(self, scene: Scene, service: JobSchedulerService, bare: BareDriver) -> None:
        self._scene = scene
        self._service = service
        self._bare = bare
        self._pgbench = Pgbench.found(scene)

    def lines(self) -> list[Line]:
        """Give the lines for acquire + complete and for `run_exclusive`."""
        cases: dict[str, Callable[[], Sample]] = {
            "tenure": self._tenure,
            "bare": self._plain,
            "exclusive": self._exclusive,
        }
        if self._pgbench:
            cases["pgbench"] = self._pgbench.pair
        for case in cases.values():
            case()
        found = interleaved(cases, self._scene.effort.repeats)
        return [
            against("acquire + complete, 1 connection", found["tenure"], "bare driver", found["bare"], 0.80),
            against("acquire + complete, 1 connection", found["tenure"], "pgbench", found.get("pgbench"), 0.60),
            against("run_exclusive, empty", found["exclusive"], "acquire + complete", found["tenure"], 0.85),
            against("the bare driver itself", found["bare"], "pgbench", found.get("pgbench"), None),
        ]

    def _tenure(self) -> Sample:
        runs, won = self._scene.options(), list[JobLease]()
        first = self._scene.measured(lambda: won.extend(map(self._win, runs)), len(runs))
        return added(first, self._scene.measured(lambda: self._complete(won), len(runs)))

    def _plain(self) -> Sample:
        runs, ids = self._scene.options(), []
        first = self._scene.measured(lambda: ids.extend(self._bare.insert(runs)), len(runs))
        return added(first, self._scene.measured(lambda: self._bare.update(ids), len(runs)))

    def _exclusive(self) -> Sample:
        runs = self._scene.options()
        return self._scene.measured(lambda: self._run_each(runs), len(runs))

    def _win(self, options: JobAcquireOptions) -> JobAcquired:
        answer = self._service.acquire(options)
        assert answer.acquired is True, "nobody else asks for this run"
        return answer

    def _complete(self, leases: Sequence[JobLease]) -> None:
        for lease in leases:
            assert self._service.complete(lease), "the lease is ours"

    def _run_each(self, runs: Sequence[JobAcquireOptions]) -> None:
        for options in runs:
            assert self._service.run_exclusive(options, _do_nothing).acquired, "nobody else asks for this run"


class _Losses:
    """Measure asking for what others hold, beside looking the row up."""

    def __init__(self, scene: Scene, service: JobSchedulerService, bare: BareDriver) -> None:
        self._scene = scene
        self._service = service
        self._bare = bare
        self._runs = scene.options()
        self._pgbench = Pgbench.found(scene)

    def lines(self) -> list[Line]:
        """Give the lines for a loss: its time, its round trips and its WAL."""
        for options in self._runs:
            self._service.acquire(options)
        cases: dict[str, Callable[[], Sample]] = {"tenure": self._tenure, "bare": self._plain}
        if self._pgbench:
            cases["pgbench"] = partial(self._pgbench.select, self._runs[0])
        for case in cases.values():
            case()
        found = interleaved(cases, self._scene.effort.repeats)
        loss = found["tenure"]
        return [
            against("a loss, 1 connection", loss, "bare SELECT", found["bare"], 0.70),
            against("a loss, 1 connection", loss, "pgbench SELECT", found.get("pgbench"), 0.55),
            _cost_line(loss, round_trips_of_a_loss(self._scene, self._runs)),
        ]

    def _tenure(self) -> Sample:
        return self._scene.measured(self._lose, len(self._runs))

    def _plain(self) -> Sample:
        return self._scene.measured(lambda: self._bare.select(self._runs), len(self._runs))

    def _lose(self) -> None:
        for options in self._runs:
            assert not self._service.acquire(options).acquired, "the run is held"


def round_trips_of_a_loss(scene: Scene, runs: Sequence[JobAcquireOptions]) -> float:
    """Count how often the connection has to wait for an answer, once its statement is prepared."""
    with Relay(scene.server.port) as relay, JobSchedulerService(relay.through(scene.url)) as service:
        for options in runs[:10]:
            service.acquire(options)
        before = relay.round_trips
        for options in runs:
            service.acquire(options)
        return (relay.round_trips - before) / len(runs)


def against(measure: str, taken: Sample, name: str, beside: Sample | None, reach: float | None) -> Line:
    """Compare the rate of a measure with that of what stands beside it."""
    target = f"≥ {reach:.2f} of {name}" if reach else ""
    if beside is None:
        return Line(measure, shown(taken), _NO_PGBENCH, None, target)
    ratio = beside.wall_us / taken.wall_us
    reached = ratio >= reach if reach else None
    return Line(measure, shown(taken), f"{name} {shown(beside)}", ratio, target, reached)


def _cost_line(loss: Sample, round_trips: float) -> Line:
    wal = loss.wal_bytes or 0.0
    value = f"{round_trips:g} round trip(s), {wal:,.0f} B of WAL"
    return Line("what a loss costs", value, "", None, "1 round trip, 0 B", (round_trips, wal) == (1, 0))


def _do_nothing() -> None:
    pass
