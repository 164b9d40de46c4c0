"""Be one node, of either scheduler, whose runs end when a file appears; say on standard output what happens."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from tenure import AsyncJobSchedulerService, JobSchedulerService
from tenure.demo.node import die_with_parent
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Cron, Every, JobRun, Retry, Schedule, Scheduler

SCHEDULES: dict[str, Schedule] = {"rare": Every(timedelta(days=30)), "second": Every(timedelta(seconds=1))}


def say(what: str, run: JobRun | None = None) -> None:
    """Write one line."""
    print(json.dumps({"what": what, "tick": run and str(run.scheduled_at)}), flush=True)


def rules(given: dict[str, Any]) -> dict[str, Any]:
    """Give the rules of the job."""
    return {
        "schedule": SCHEDULES[given["schedule"]] if given["schedule"] in SCHEDULES else Cron(given["schedule"]),
        "lease": timedelta(seconds=given["lease_s"]),
        "retry": Retry(max_attempts=1),
        "max_lateness": None,
        "overlap": "allow",
    }


def settings(given: dict[str, Any]) -> dict[str, Any]:
    """Give the settings of the scheduler."""
    return {"poll": timedelta(seconds=0.1), "drain": timedelta(seconds=given["drain_s"]), "retention": None}


class Holding:
    """Say once that the run was told to stop, and whether it may end."""

    def __init__(self, run: JobRun, free: Path) -> None:
        self._run, self._free, self._told = run, free, False
        say("began", run)

    def goes_on(self) -> bool:
        """Say whether it does."""
        if self._run.stopping and not self._told:
            self._told = True
            say("told to stop", self._run)
        return not self._free.exists()


async def live_on_a_loop(given: dict[str, Any], free: Path) -> None:
    """Run an AsyncScheduler until it is told to stop."""
    async with AsyncJobSchedulerService(given["url"], owner_label=given["label"]) as service:
        scheduler = AsyncScheduler(service, **settings(given))

        @scheduler.job("j", **rules(given))
        async def hold(run: AsyncJobRun) -> None:
            held = Holding(run, free)
            try:
                while held.goes_on():
                    await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                say("cancelled", run)
                raise
            say("ended", run)

        await scheduler.run()


def live_in_threads(given: dict[str, Any], free: Path) -> None:
    """Run a Scheduler until it is told to stop; its callback never looks whether it may go on."""
    with JobSchedulerService(given["url"], owner_label=given["label"]) as service:
        scheduler = Scheduler(service, **settings(given))

        @scheduler.job("j", **rules(given))
        def hold(run: JobRun) -> None:
            held = Holding(run, free)
            while held.goes_on():
                time.sleep(0.005)
            say("ended", run)

        scheduler.run()


def main(text: str) -> None:
    """Run until a signal ends it."""
    given = json.loads(text)
    free = Path(given["free"])
    if given["kind"] == "AsyncScheduler":
        asyncio.run(live_on_a_loop(given, free))
    else:
        live_in_threads(given, free)
    say("left")


if __name__ == "__main__":
    die_with_parent()
    main(sys.argv[1])
