"""Send the scheduler's statements as a node of it would, and look at what they leave."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from tenure import JobAcquired, JobAcquireOptions, JobSchedulerService
from tenure.clock import boot_s
from tenure.operations import Attempt
from tenure.scheduling import operations
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import (
    Claimed,
    Decided,
    Decision,
    Heard,
    JobRegistration,
    NodeLife,
    Outcome,
    Overlap,
    Pruned,
    Retake,
    TickClaim,
    Triggered,
    UnfinishedRuns,
    Verdict,
)
from tests.support.rows import TABLE, execute, row_of

CODE = "sync-orders"
MINUTE = timedelta(minutes=1)
JOBS = '"public"."job-scheduler_jobs"'


def run_key(tick: datetime) -> str:
    """Write a tick as its run key."""
    return tick.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{tick.microsecond // 1000:03}Z"


def options_for(tick: datetime, code: str = CODE, lease_ms: int = 60_000) -> JobAcquireOptions:
    """Name the run of a tick."""
    return JobAcquireOptions(code=code, run_key=run_key(tick), lease_ms=lease_ms)


class TickNode:
    """One node of a scheduler, as far as the database sees it; its service is not closed here."""

    def __init__(self, service: JobSchedulerService, label: str = "node-a", fingerprint: str = "every minute") -> None:
        self.service = service
        self.statements = SchedulingStatements(service.table)
        self.life = NodeLife(node=uuid4(), label=label)
        self.fingerprint = fingerprint

    def register(self, *codes: str, policy: Mapping[str, Any] | None = None) -> Heard:
        jobs = [
            JobRegistration(
                code=code, schedule="* * * * *", timezone="UTC", fingerprint=self.fingerprint, policy=policy or {}
            )
            for code in codes or (CODE,)
        ]
        return self.service.perform(operations.registration(self.statements, self.life, jobs, now_boot_s=boot_s()))

    def beat(self, *codes: str, offset: timedelta | None = None) -> Heard:
        jobs = dict.fromkeys(codes or (CODE,), self.fingerprint)
        return self.service.perform(operations.beat(self.statements, self.life, jobs, offset, now_boot_s=boot_s()))

    def claim_once(self, tick: datetime, code: str = CODE, **changes: Any) -> Claimed:
        lease_ms = changes.pop("lease_ms", 60_000)
        wanted = TickClaim(
            **{
                "options": options_for(tick, code, lease_ms),
                "tick": tick,
                "previous_tick": None,
                "fingerprint": self.fingerprint,
                "overlap": "allow",
                **changes,
            }
        )
        make = partial(claim_attempt, self.statements, wanted)
        return self.service.win(make)

    def claim(self, tick: datetime, code: str = CODE, **changes: Any) -> Claimed:
        """Claim until the verdict is one: contended says to ask again."""
        until_s = time.monotonic() + 30
        while True:
            claimed = self.claim_once(tick, code, **dict(changes))
            if claimed.verdict is not Verdict.CONTENDED:
                return claimed
            assert time.monotonic() < until_s, "contended for ever"

    def retake_once(self, options: JobAcquireOptions, max_attempts: int = 5, overlap: Overlap = "allow") -> Claimed:
        wanted = Retake(options=options, max_attempts=max_attempts, overlap=overlap)
        return self.service.win(partial(_retake, self.statements, wanted))

    def retake(self, options: JobAcquireOptions, max_attempts: int = 5, overlap: Overlap = "allow") -> Claimed:
        until_s = time.monotonic() + 30
        while True:
            claimed = self.retake_once(options, max_attempts, overlap)
            if claimed.verdict is not Verdict.CONTENDED:
                return claimed
            assert time.monotonic() < until_s, "contended for ever"

    def decide(
        self,
        ticks: list[datetime],
        watermark: datetime,
        outcome: Outcome = Outcome.SKIPPED,
        code: str = CODE,
        moves_to: datetime | None = None,
    ) -> Decided:
        wanted = Decision(
            code=code,
            fingerprint=self.fingerprint,
            watermark=watermark,
            ticks={run_key(tick): tick for tick in ticks},
            outcome=outcome,
            moves_to=moves_to,
        )
        return self.service.perform(operations.decision(self.statements, wanted, now_boot_s=boot_s()))

    def unfinished(self, *codes: str, lease_ms: int = 60_000) -> UnfinishedRuns:
        asked = dict.fromkeys(codes or (CODE,), lease_ms)
        return self.service.perform(operations.unfinished(self.statements, asked, now_boot_s=boot_s()))

    def trigger(self, key: str, code: str = CODE, at: datetime | None = None) -> Triggered:
        attempt = operations.trigger(self.statements, code, key, at, owner_token=uuid4(), now_boot_s=boot_s())
        return self.service.perform(attempt)

    def pause(self, code: str = CODE, by: str = "ops", reason: str | None = "maintenance") -> bool:
        return self.service.perform(operations.pause(self.statements, code, by, reason, now_boot_s=boot_s()))

    def resume(self, code: str = CODE) -> bool:
        return self.service.perform(operations.resume(self.statements, code, now_boot_s=boot_s()))

    def prune_once(self, keep: timedelta, keep_failed: timedelta, after: int = 0, limit: int = 1_000) -> Pruned:
        attempt = operations.prune(self.statements, keep, keep_failed, now_boot_s=boot_s(), after=after, limit=limit)
        return self.service.perform(attempt)

    def prune(self, keep: timedelta, keep_failed: timedelta | None = None, limit: int = 1_000) -> int:
        """Prune in batches to the end, and count what went."""
        removed, pruned = 0, Pruned(removed=0, after=0, more=True)
        while pruned.more:
            pruned = self.prune_once(keep, keep if keep_failed is None else keep_failed, pruned.after, limit)
            removed += pruned.removed
        return removed


def claim_attempt(statements: SchedulingStatements, wanted: TickClaim, token: UUID, owner: str) -> Attempt[Claimed]:
    """Make what claims a tick."""
    return operations.claim(statements, wanted, token, owner, now_boot_s=boot_s(), clock=boot_s)


def _retake(statements: SchedulingStatements, wanted: Retake, token: UUID, owner: str) -> Attempt[Claimed]:
    return operations.retake(statements, wanted, token, owner, now_boot_s=boot_s(), clock=boot_s)


def won(claimed: Claimed) -> JobAcquired:
    """Give the lease, for it must be one."""
    assert claimed.verdict is Verdict.WON, claimed
    assert claimed.won is not None
    return claimed.won


def known_for(url: str, since: timedelta, code: str = CODE) -> datetime:
    """Set a job's watermark to a whole minute, that long ago, and give it."""
    execute(
        url,
        f"UPDATE {JOBS} SET \"watermark\" = date_trunc('minute', clock_timestamp() - %s), "
        '"knownSince" = "knownSince" - %s WHERE "code" = %s',
        since,
        since,
        code,
    )
    return watermark_of(url, code)


def watermark_of(url: str, code: str = CODE) -> datetime:
    ((watermark,),) = execute(url, f'SELECT "watermark" FROM {JOBS} WHERE "code" = %s', code)
    assert isinstance(watermark, datetime)
    return watermark


def tick_row(url: str, tick: datetime, code: str = CODE) -> dict[str, Any]:
    """Give the row of a tick's run."""
    return row_of(url, options_for(tick, code).lock_key)


def count_rows(url: str) -> int:
    return int(execute(url, f"SELECT count(*) FROM {TABLE}")[0][0])


def expire(url: str, tick: datetime, code: str = CODE) -> None:
    """Make the lease of a tick's run run out."""
    execute(
        url,
        f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" - interval \'1 day\' WHERE "lockKey" = %s',
        options_for(tick, code).lock_key,
    )


def make_old(url: str, by: timedelta = timedelta(days=40)) -> None:
    """Make all runs older, as if that time had passed since."""
    execute(
        url,
        f'UPDATE {TABLE} SET "createdAt" = "createdAt" - %s, "startedAt" = "startedAt" - %s, '
        '"modifiedAt" = "modifiedAt" - %s, "finishedAt" = "finishedAt" - %s',
        *[by] * 4,
    )


@contextmanager
def tick_nodes(url: str, count: int) -> Iterator[list[TickNode]]:
    """Several nodes, each with a service of its own."""
    services = [JobSchedulerService(url, owner_label=f"node-{n}") for n in range(count)]
    try:
        yield [TickNode(service, f"node-{n}") for n, service in enumerate(services)]
    finally:
        for service in services:
            service.close()
