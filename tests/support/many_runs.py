"""Fill tables with a long history, quickly and always alike: `python -m tests.support.many_runs --runs 1000000 URL`.

Each job ticks every minute, up to the last minute. Most runs have succeeded, some after several attempts. A few jobs
are in trouble, each in its own way: see `Trouble`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from enum import IntEnum

import psycopg

from tenure import JobSchedulerService
from tenure.scheduling import Cron

TABLE = '"public"."job-scheduler"'
EVERY_MINUTE = Cron("* * * * *")


class Trouble(IntEnum):
    """Say which job has which trouble, by its number; all of them are there from 20 jobs on."""

    FAILING = 3
    """Its last 40 runs have used up their attempts."""
    NEVER_SUCCEEDED = 4
    """Every run it ever had was paused away."""
    PAUSED = 5
    ORPHANED = 6
    OVERDUE = 7
    """Nobody has decided its ticks for an hour."""
    DIED = 8
    """The node of its last run has died, ten minutes ago."""
    RETRYING = 9
    """Its last run has failed and waits for its retry."""


def code_of(number: int) -> str:
    """Name a job."""
    return f"job-{number:04}"


_JOBS = f"""
INSERT INTO {TABLE[:-1]}_jobs" ("code", "schedule", "timezone", "fingerprint", "policy", "knownSince", "watermark",
  "registeredAt", "registeredBy", "pausedAt", "pausedBy", "pauseReason")
SELECT 'job-' || to_char(job, 'FM0000'), '* * * * *', 'UTC', '{EVERY_MINUTE.fingerprint}',
  '{{"kind": "cron", "words": "every minute", "lease_ms": 60000, "max_attempts": 5, "catch_up": "latest",
    "max_lateness_ms": 86400000, "overlap": "skip", "timeout_ms": null, "jitter_ms": 0}}',
  clock_timestamp() - INTERVAL '400 days',
  date_trunc('minute', clock_timestamp())
    - CASE job WHEN {Trouble.OVERDUE} THEN INTERVAL '1 hour' ELSE INTERVAL '0' END,
  clock_timestamp() - INTERVAL '400 days', 'node-1',
  CASE WHEN job = {Trouble.PAUSED} THEN clock_timestamp() - INTERVAL '10 seconds' END,
  CASE WHEN job = {Trouble.PAUSED} THEN 'ops' END, CASE WHEN job = {Trouble.PAUSED} THEN 'maintenance' END
FROM generate_series(1, %(jobs)s) AS job
"""
_NODES = f"""
INSERT INTO {TABLE[:-1]}_nodes" ("node", "label", "clockOffsetMs", "jobs")
SELECT gen_random_uuid(), 'node-' || node, node * 10,
  (SELECT jsonb_object_agg('job-' || to_char(job, 'FM0000'), '{EVERY_MINUTE.fingerprint}')
    FROM generate_series(1, %(jobs)s) AS job WHERE job <> {Trouble.ORPHANED})
FROM generate_series(1, 5) AS node
"""
# A run's place in time decides its fencing token, as it does where runs begin one after the other.
_RUNS = f"""
INSERT INTO {TABLE} ("lockKey", "code", "type", "status", "ownerToken", "data", "createdAt", "modifiedAt", "attempt",
  "leaseMs", "owner", "runKey", "startedAt", "finishedAt", "scheduledAt", "outcome", "retryAt")
SELECT 'v2:' || translate(encode(sha256(convert_to('{{"version":2,"type":"SCHEDULE","code":"' || code || '","runKey":"'
    || key || '"}}', 'UTF8')), 'base64'), '+/=', '-_'),
  code, 'SCHEDULE', CAST(CASE WHEN live OR died THEN 'RUNNING' WHEN outcome IN ('exhausted', 'failed') THEN 'FAIL'
    ELSE 'SUCCESS' END AS "public"."job-scheduler_status_enum"),
  gen_random_uuid(), CASE WHEN outcome IN ('exhausted', 'failed') THEN jsonb_build_object('error', 'OSError: no route')
    WHEN outcome = 'succeeded' THEN jsonb_build_object('rows', n %% 1000) END,
  began, CASE WHEN live THEN clock_timestamp() WHEN died THEN began - INTERVAL '10 minutes' ELSE ended END,
  CASE outcome WHEN 'paused' THEN 0 WHEN 'exhausted' THEN 5 ELSE 1 + n %% 37 / 36 END, 60000,
  CASE WHEN outcome <> 'paused' OR outcome IS NULL THEN 'node-' || 1 + n %% 5 END, key,
  CASE WHEN outcome <> 'paused' OR outcome IS NULL THEN began END, CASE WHEN NOT (live OR died) THEN ended END, tick,
  CASE WHEN NOT (live OR died) THEN outcome END,
  CASE WHEN outcome = 'failed' THEN clock_timestamp() + INTERVAL '5 minutes' END
FROM (
  SELECT n, job, code, tick, to_char(tick AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS key,
    tick + n %% 1000 * INTERVAL '1 millisecond' AS began,
    tick + INTERVAL '1 second' + n %% 30000 * INTERVAL '1 millisecond' AS ended,
    newest AND job %% 10 = 0 AS live, newest AND job = {Trouble.DIED} AS died,
    CASE WHEN job = {Trouble.FAILING} AND back < 40 THEN 'exhausted' WHEN job = {Trouble.NEVER_SUCCEEDED} THEN 'paused'
      WHEN job = {Trouble.RETRYING} AND newest THEN 'failed' WHEN n %% 991 = 0 AND NOT newest THEN 'skipped'
      ELSE 'succeeded' END AS outcome
  FROM (
    SELECT n, job, 'job-' || to_char(job, 'FM0000') AS code, back, back = 0 AS newest,
      date_trunc('minute', clock_timestamp()) - back * INTERVAL '1 minute' AS tick
    FROM (
      SELECT n, n %% %(jobs)s + 1 AS job, (%(runs)s - 1 - n) / %(jobs)s AS back
      FROM generate_series(CAST(%(since)s AS bigint), %(until)s) AS n
    ) AS numbered
  ) AS placed
) AS told
ORDER BY n
"""
_ATTEMPTS = f"""
INSERT INTO {TABLE[:-1]}_attempts" ("runId", "attempt", "fencingToken", "owner", "status", "leaseMs", "startedAt",
  "endedAt", "data", "outcome")
SELECT run."id", former, -run."fencingToken" * 10 - former, 'node-2', 'FAIL', 60000,
  run."startedAt" - (run."attempt" - former) * INTERVAL '10 seconds',
  run."startedAt" - (run."attempt" - former) * INTERVAL '10 seconds' + INTERVAL '3 seconds',
  '{{"error": "OSError: no route"}}', 'failed'
FROM {TABLE} AS run CROSS JOIN LATERAL generate_series(1, run."attempt" - 1) AS former WHERE run."attempt" > 1
"""
_BATCH = 100_000


def fill(url: str, *, runs: int, jobs: int) -> None:
    """Fill tables that are there and empty: `runs` in all, the same number for each of `jobs` but for one."""
    counts = {"runs": runs, "jobs": jobs}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_JOBS.encode(), counts)
        connection.execute(_NODES.encode(), counts)
        for since in range(0, runs, _BATCH):
            until = min(since + _BATCH, runs) - 1
            connection.execute(_RUNS.encode(), {**counts, "since": since, "until": until})
        connection.execute(_ATTEMPTS.encode())
        connection.execute(b"VACUUM ANALYZE")


def keep_alive(url: str) -> None:
    """Have all nodes and all live leases heard of now, as if they had gone on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'UPDATE {TABLE[:-1]}_nodes" SET "seenAt" = clock_timestamp()'.encode())
        renewed = f'UPDATE {TABLE} SET "modifiedAt" = clock_timestamp() WHERE "status" = \'RUNNING\' AND "code" <> %s'
        connection.execute(renewed.encode(), [code_of(Trouble.DIED)])


def main(arguments: Sequence[str]) -> None:
    """Make the schema where it is missing, and fill it."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.many_runs", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=200)
    chosen = parser.parse_args(arguments)
    with JobSchedulerService(chosen.url) as service:
        service.migrate()
    started_s = time.monotonic()
    fill(chosen.url, runs=chosen.runs, jobs=chosen.jobs)
    print(f"{chosen.runs:,} runs of {chosen.jobs} jobs in {time.monotonic() - started_s:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
