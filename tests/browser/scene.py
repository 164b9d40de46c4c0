"""A shop's jobs on a bad night, for pictures: what each page looks like when it is needed. Always alike but for the
time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import psycopg

from tenure import JobAcquireOptions
from tenure.scheduling import Cron, Every, Schedule, run_key

Statement: TypeAlias = tuple[bytes, list[Any]]

NODES = ("shop-1", "shop-2", "shop-3")
RUNS = 110
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Plan:
    """Say what a job is and how its runs have gone; `lately` is of the newest runs, oldest first."""

    code: str
    schedule: Schedule
    takes_s: float
    lately: tuple[str, ...] = ()
    lease_s: int = 60
    overlap: str = "skip"
    done: tuple[int, int] | None = None
    nodes: tuple[str, ...] = NODES
    paused: str | None = None
    now_and_then: dict[int, str] = field(default_factory=dict)


BERLIN = "Europe/Berlin"
PLANS = (
    Plan("sync-orders", Every(timedelta(minutes=1)), 4, now_and_then={17: "overlapped", 41: "failed twice"}),
    Plan(
        "send-invoices", Cron("*/15 * * * *", timezone=BERLIN), 22,
        ("failed once", "exhausted", "exhausted"), now_and_then={30: "failed once"},
    ),
    Plan("refresh-search-index", Every(timedelta(minutes=5)), 95, ("running",), done=(61_400, 84_000)),
    Plan("import-prices", Every(timedelta(minutes=10)), 40, ("died", "running"), done=(3, 12)),
    Plan("nightly-report", Cron("0 3 * * *", timezone=BERLIN), 780, now_and_then={12: "too late", 33: "died"}),
    Plan("warm-caches", Every(timedelta(minutes=2)), 2, ("failed",), now_and_then={8: "failed once"}),
    Plan("prune-sessions", Cron("@hourly", timezone="UTC"), 6, ("paused", "paused"), paused="until the disk is larger"),
    Plan("rotate-keys", Cron("30 1 * * 1", timezone=BERLIN), 3),
    Plan("export-to-warehouse", Cron("20 * * * *", timezone="UTC"), 130, nodes=("shop-4",), overlap="queue"),
)  # fmt: skip


def play(url: str) -> None:
    """Fill the tables that are there and empty."""
    chance = random.Random(5)
    with psycopg.connect(url, autocommit=True) as connection:
        [(now,)] = connection.execute("SELECT clock_timestamp()").fetchall()
        for statement in (*_jobs(now), *_nodes(now), *_runs(now, chance)):
            connection.execute(*statement)


def _jobs(now: datetime) -> Iterator[Statement]:
    return (_job(plan, now) for plan in PLANS)


def _nodes(now: datetime) -> Iterator[Statement]:
    heard = [*((label, 1 + place, 12 * place) for place, label in enumerate(NODES)), ("shop-4", 4_000, -340)]
    for label, silent_s, offset_ms in heard:
        jobs = {plan.code: plan.schedule.fingerprint for plan in PLANS if label in plan.nodes}
        yield _insert("job-scheduler_nodes", {
            "node": uuid4(), "label": label, "startedAt": now - timedelta(hours=30),
            "seenAt": now - timedelta(seconds=silent_s), "clockOffsetMs": offset_ms, "jobs": json.dumps(jobs),
        })  # fmt: skip


def _runs(now: datetime, chance: random.Random) -> Iterator[Statement]:
    """Give the runs in the order in which they began, which is that of their fencing tokens."""
    rows = [(plan, row) for plan in PLANS for row in _rows(plan, now, chance)]
    for plan, row in sorted(rows, key=lambda each: each[1]["createdAt"]):
        attempts = row.pop("attempts")
        yield _insert("job-scheduler", row)
        for attempt in attempts:
            yield _insert("job-scheduler_attempts", {**attempt, "runId": row["id"]})
        if plan.done and row["status"] == "RUNNING":
            saved = json.dumps({"done": plan.done[0], "of": plan.done[1]})
            yield _insert(
                "job-scheduler_checkpoints",
                {"runId": row["id"], "attempt": row["attempt"], "data": saved, "savedAt": row["modifiedAt"]},
            )


def _job(plan: Plan, now: datetime) -> Statement:
    policy = {
        "kind": plan.schedule.kind, "words": plan.schedule.describe(), "lease_ms": plan.lease_s * 1000,
        "max_attempts": 3, "catch_up": "latest", "max_lateness_ms": 86_400_000, "overlap": plan.overlap,
        "timeout_ms": 1_800_000, "jitter_ms": 0,
    }  # fmt: skip
    return _insert("job-scheduler_jobs", {
        "code": plan.code, "schedule": plan.schedule.text, "timezone": plan.schedule.timezone,
        "fingerprint": plan.schedule.fingerprint, "policy": json.dumps(policy),
        "knownSince": now - timedelta(days=300), "watermark": plan.schedule.tick_at(now),
        "registeredAt": now - timedelta(days=3), "registeredBy": plan.nodes[0],
        "pausedAt": now - timedelta(hours=2) if plan.paused else None,
        "pausedBy": "dana" if plan.paused else None, "pauseReason": plan.paused,
    })  # fmt: skip


def _rows(plan: Plan, now: datetime, chance: random.Random) -> Iterator[dict[str, Any]]:
    tick: datetime | None = plan.schedule.tick_at(now)
    fates = [*reversed(plan.lately)]
    for back in range(RUNS):
        if tick is None:
            return
        fate = fates[back] if back < len(fates) else plan.now_and_then.get(back, "succeeded")
        yield _row(plan, tick, fate, now, chance)
        tick = plan.schedule.previous(tick)


_ERRORS = (
    "SMTPServerDisconnected: Connection unexpectedly closed",
    "TimeoutError: the bank's API did not answer in 10 s",
)
_NEVER = ("overlapped", "too late", "paused")


def _row(plan: Plan, tick: datetime, fate: str, now: datetime, chance: random.Random) -> dict[str, Any]:
    key = run_key(tick)
    lag = timedelta(milliseconds=chance.randrange(15, 320))
    took = timedelta(seconds=plan.takes_s * chance.uniform(0.7, 1.5))
    ran = fate not in _NEVER
    former = {"exhausted": 2, "failed twice": 2, "failed once": 1, "died": 0}.get(fate, 0)
    began = tick + lag + timedelta(seconds=former * 14)
    ended = began + min(took, max(now - began - SECOND, SECOND))
    row: dict[str, Any] = {
        "id": UUID(int=chance.getrandbits(128), version=4), "runKey": key, "code": plan.code, "type": "SCHEDULE",
        "lockKey": JobAcquireOptions(code=plan.code, run_key=key).lock_key, "ownerToken": uuid4(),
        "createdAt": tick + lag, "scheduledAt": tick, "leaseMs": plan.lease_s * 1000,
        "attempt": former + 1 if ran else 0,
        "owner": chance.choice(plan.nodes) if ran else None, "startedAt": began if ran else None,
        "finishedAt": ended, "modifiedAt": ended, "status": "SUCCESS", "outcome": fate if not ran else "succeeded",
        "data": None if not ran else json.dumps({"rows": chance.randrange(20, 4_000)}), "retryAt": None, "attempts": [],
    }  # fmt: skip
    error = json.dumps({"error": _ERRORS[0] if plan.code == "send-invoices" else _ERRORS[1]})
    for number in range(1, former + 1):
        start = tick + lag + timedelta(seconds=(number - 1) * 14)
        row["attempts"].append({
            "attempt": number, "fencingToken": chance.randrange(100, 900), "owner": chance.choice(plan.nodes),
            "status": "FAIL", "outcome": "failed", "leaseMs": row["leaseMs"], "startedAt": start,
            "endedAt": start + timedelta(seconds=chance.uniform(2, 8)), "data": error,
        })  # fmt: skip
    if fate in ("exhausted", "failed"):
        row.update(status="FAIL", outcome=fate, data=error, finishedAt=min(ended, began + 6 * SECOND))
        row.update(modifiedAt=row["finishedAt"], retryAt=now + timedelta(seconds=48) if fate == "failed" else None)
    elif fate == "running":
        renewed = now - timedelta(seconds=chance.uniform(8, 30))
        row.update(status="RUNNING", outcome=None, finishedAt=None, data=None, modifiedAt=max(renewed, began))
        row.update(startedAt=min(began, now - 40 * SECOND))
    elif fate == "died":
        row.update(status="SUCCESS", attempt=2, startedAt=began + 75 * SECOND, finishedAt=ended + 75 * SECOND)
        row["attempts"].append({
            "attempt": 1, "fencingToken": chance.randrange(100, 900), "owner": "shop-2", "status": "RUNNING",
            "outcome": None, "leaseMs": row["leaseMs"], "startedAt": began, "endedAt": began + 20 * SECOND,
            "data": None,
        })  # fmt: skip
    return row


def _insert(table: str, values: dict[str, Any]) -> Statement:
    names = ", ".join(f'"{name}"' for name in values)
    return f'INSERT INTO "{table}" ({names}) VALUES ({", ".join(["%s"] * len(values))})'.encode(), [*values.values()]
