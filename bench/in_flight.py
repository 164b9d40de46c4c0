"""One process, one loop, 32 runs in flight, beside pgbench with eight connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from bench.bare import Pgbench
from bench.measure import Line, Sample, interleaved
from bench.one_connection import against
from bench.scene import Scene
from tenure import AsyncJobSchedulerService, JobAcquireOptions

IN_FLIGHT: Final = 32


def run(scene: Scene) -> list[Line]:
    """Measure acquire + complete with 32 in flight."""
    pgbench = Pgbench.found(scene, connections=8)
    cases: dict[str, Callable[[], Sample]] = {"tenure": lambda: asyncio.run(_tenure(scene))}
    if pgbench:
        cases["pgbench"] = pgbench.pair
    found = interleaved(cases, scene.effort.repeats)
    measure = f"acquire + complete, {IN_FLIGHT} in flight"
    return [against(measure, found["tenure"], "pgbench -c 8", found.get("pgbench"), 0.50)]


async def _tenure(scene: Scene) -> Sample:
    """Warm the connections up, then measure; a loop of its own each time, as a service belongs to one."""
    async with AsyncJobSchedulerService(scene.url, owner_label="bench") as service:
        await _all(service, scene.options())
        runs = [run for _ in range(4) for run in scene.options()]
        return await scene.measured_async(lambda: _all(service, runs), len(runs))


async def _all(service: AsyncJobSchedulerService, runs: Sequence[JobAcquireOptions]) -> None:
    left = iter(runs)

    async def work() -> None:
        for options in left:
            answer = await service.acquire(options)
            assert answer.acquired is True, "nobody else asks for this run"
            assert await service.complete(answer), "the lease is ours"

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())
