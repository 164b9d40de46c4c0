"""Be one node: ask for each tick that is due, through the public API, and do the work of those that are won.

Every node runs this same code, and none is special. A scheduler of its own is not part of tenure yet, so a node asks
again for each tick that has not succeeded: that is how the runs of the dead are taken over.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from tenure import (
    JobAcquireOptions,
    JobExecutionLease,
    JobSchedulerService,
    LostJobLeaseError,
    NotAcquiredReason,
)
from tenure.demo.effects import FencedOutError, claim, load
from tenure.demo.orders import Order, in_batches, read_orders
from tenure.demo.plan import BATCH_PAUSE_S, BATCHES, LEASE_MS, Plan
from tenure.demo.tables import CODE, Effect, EventKind, Tables, Tick

URL_VARIABLE: Final = "TENURE_DATABASE_URL"
LOOK_EVERY_S: Final = 0.04
LEAVING_LIMIT_S: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class Node:
    """Ask, work, and report, until told to stop."""

    def __init__(self, name: str, number: int, plan: Plan, desk: Tables, service: JobSchedulerService) -> None:
        self._name = name
        self._number = number
        self._plan = plan
        self._desk = desk
        self._service = service
        self._orders = read_orders()
        self._done: set[int] = set()

    def run(self, stopping: threading.Event, store: Callable[[], contextlib.AbstractContextManager[Tables]]) -> None:
        """Go round all ticks that are due and not done. `store` connects to where the orders go, once for each run."""
        self._store = store
        self._desk.report(self._name, EventKind.READY)
        while not stopping.wait(LOOK_EVERY_S):
            for tick, age_s in self._desk.due_ticks():
                patient = age_s < self._plan.patience_s(self._number, tick.number)
                if tick.number not in self._done and not patient and not stopping.is_set():
                    self._ask(tick)

    def _ask(self, tick: Tick) -> None:
        """Ask for one run. The same options on every node name the same run, and one of them wins it."""
        options = JobAcquireOptions(
            code=CODE, run_key=tick.run_key, name="Load the orders of the day", lease_ms=LEASE_MS
        )
        # A former owner's own exception; tenure has left the run to its new owner, who is the one to end it.
        with contextlib.suppress(LostJobLeaseError, FencedOutError):
            answer = self._service.run_exclusive(options, partial(self._work, tick))
            over = answer.not_acquired is not None and answer.not_acquired.reason is NotAcquiredReason.SUCCEEDED
            if answer.acquired or over:
                self._done.add(tick.number)

    def _work(self, tick: Tick, lease: JobExecutionLease) -> None:
        """Load the orders under the fencing token of this lease; `run_exclusive` records how it ends."""
        effect = Effect(tick.run_key, lease.attempt, lease.fencing_token, self._name)
        self._report(EventKind.WON, effect)
        try:
            with self._store() as store:
                if claim(store, effect):
                    return self._report(EventKind.FOUND_LOADED, effect)
                totals = load(store, effect, self._in_steps(effect, lease), lease.check)
        except (LostJobLeaseError, FencedOutError) as error:
            self._report(EventKind.LOST, effect, _why(error))
            self._protest(lease, effect)
            raise
        return self._report(EventKind.LOADED, effect, f"{totals.orders:,} orders")

    def _in_steps(self, effect: Effect, lease: JobExecutionLease) -> Iterator[Sequence[Order]]:
        """Give the orders batch by batch, and look at the lease before each."""
        for number, batch in enumerate(in_batches(self._orders, BATCHES), start=1):
            lease.check()
            yield batch
            self._report(EventKind.BATCH, effect, f"{number}/{BATCHES}")
            time.sleep(BATCH_PAUSE_S)

    def _protest(self, lease: JobExecutionLease, effect: Effect) -> None:
        """Try all that a former owner must not do, as a node would that does not know what time it is."""
        if self._service.heartbeat(lease):
            # The deadline passed, but nobody had taken over: the run is ours in the database, and asked for again.
            return
        writes: dict[str, Callable[[], bool]] = {
            "load": partial(self._load_late, effect),
            "complete": partial(self._service.complete, lease, {"late": True}),
            "fail": partial(self._service.fail, lease, {"late": True}),
            "release": partial(self._service.release, lease),
        }
        self._report(EventKind.REFUSED, effect, "heartbeat: the lease is another node's")
        for name, write in writes.items():
            self._try(name, write, effect)
        self._report(EventKind.PROTESTED, effect)

    def _try(self, name: str, write: Callable[[], bool], effect: Effect) -> None:
        try:
            kind = EventKind.ACCEPTED if write() else EventKind.REFUSED
            why = "the lease is another node's"
        except FencedOutError as error:
            kind, why = EventKind.REFUSED, str(error)
        self._report(kind, effect, name if kind is EventKind.ACCEPTED else f"{name}: {why}")

    def _load_late(self, effect: Effect) -> bool:
        with self._store() as store:
            load(store, effect, [self._orders], lambda: None)
        return True

    def _report(self, kind: EventKind, effect: Effect, detail: str = "") -> None:
        self._desk.report(self._name, kind, effect, detail)


def _why(error: LostJobLeaseError | FencedOutError) -> str:
    return error.reason.value if isinstance(error, LostJobLeaseError) else str(error)


def die_with_parent() -> None:
    """Have Linux kill this process with the one that started it, even while it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def stop_at_end_of_input() -> threading.Event:
    """Give an event that is set when standard input ends: the director says so, or is dead."""
    stopping = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        stopping.set()
        time.sleep(LEAVING_LIMIT_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-of-input", daemon=True).start()
    return stopping


def main() -> None:
    """Run a node. The URL comes by the environment, since everybody on the host may read a command line."""
    parser = argparse.ArgumentParser(prog="python -m tenure.demo.node")
    parser.add_argument("name")
    parser.add_argument("schema")
    for number in ("number", "nodes", "ticks", "seed"):
        parser.add_argument(f"--{number}", type=int, required=True)
    given = parser.parse_args()
    die_with_parent()
    stopping = stop_at_end_of_input()
    url = os.environ[URL_VARIABLE]
    store = partial(Tables.open, url, given.schema)
    plan = Plan(given.nodes, given.ticks, given.seed)
    with store() as desk, JobSchedulerService(url, schema=given.schema, owner_label=given.name) as service:
        Node(given.name, given.number, plan, desk, service).run(stopping, store)


if __name__ == "__main__":
    main()
