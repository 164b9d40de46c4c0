-- One named block is one statement and one round trip. `:name` is a parameter, `${name}` a quoted identifier.
-- Instants leave as microseconds since the epoch and identifiers as text: a session's DateStyle and TimeZone, and an
-- application's own loaders, change nothing.

-- name: acquire
-- Win the run, or say why not. A loss to a row that is there writes nothing at all.
WITH seen AS MATERIALIZED (
  SELECT tableoid AS "runs", "id", "status", "ownerToken", "attempt", "fencingToken", "owner", "startedAt", "modifiedAt",
    "finishedAt",
    COALESCE("leaseMs", CAST(:lease_ms AS bigint)) AS "leaseMs"
  FROM ${table} WHERE "lockKey" = CAST(:lock_key AS varchar)
), barred AS MATERIALIZED (
  -- No row: then the tick may have been decided before, and its row removed. Row and watermark are read in one snapshot,
  -- and who removes the row moves the watermark with it, so one of the two is seen.
  SELECT WHERE NOT EXISTS (SELECT FROM seen)
    AND CAST(:run_key AS varchar) ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}Z$'
    AND ${decided_function}(CAST(:code AS varchar), CAST(:run_key AS varchar))
), fresh AS (
  INSERT INTO ${table} ("lockKey", "code", "name", "type", "status", "ownerToken", "leaseMs", "owner", "runKey",
    "scheduledAt")
  SELECT CAST(:lock_key AS varchar), CAST(:code AS varchar), CAST(:name AS varchar), CAST(:type AS ${type_enum}),
    'RUNNING', CAST(:owner_token AS uuid), CAST(:lease_ms AS bigint), CAST(:owner AS varchar), CAST(:run_key AS varchar),
    CAST(:scheduled_at AS timestamptz)
  WHERE NOT EXISTS (SELECT FROM seen) AND NOT EXISTS (SELECT FROM barred)
  ON CONFLICT ("lockKey") DO NOTHING
  RETURNING "id", "fencingToken", "attempt"
), free AS (
  SELECT "id" FROM ${table}
  WHERE "lockKey" = CAST(:lock_key AS varchar)
    -- the statement may be sent twice: it never takes a run from itself
    AND "ownerToken" <> CAST(:owner_token AS uuid)
    AND ("status" = 'FAIL' OR ("status" = 'RUNNING'
      -- by the holder's own length, on the database's clock, as an age
      AND (EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM "modifiedAt")) * 1000
        > COALESCE("leaseMs", CAST(:lease_ms AS bigint))))
  -- a guard or any other lock on the row is a loss, at once
  FOR UPDATE SKIP LOCKED
), taken AS (
  UPDATE ${table} AS run SET "status" = 'RUNNING', "ownerToken" = CAST(:owner_token AS uuid), "fencingToken" = DEFAULT,
    "attempt" = run."attempt" + 1, "leaseMs" = CAST(:lease_ms AS bigint), "owner" = CAST(:owner AS varchar),
    "runKey" = CAST(:run_key AS varchar), "modifiedAt" = clock_timestamp(), "startedAt" = clock_timestamp(),
    "finishedAt" = NULL, "scheduledAt" = COALESCE(run."scheduledAt", CAST(:scheduled_at AS timestamptz)),
    "outcome" = NULL, "retryAt" = NULL
  FROM free WHERE run."id" = free."id"
  RETURNING run.tableoid AS "runs", run."id", run."fencingToken", run."attempt"
)
SELECT 'won', CAST("id" AS text), "fencingToken", "attempt",
  CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS bigint), CAST(NULL AS bigint), CAST(NULL AS bigint), CAST(NULL AS bigint),
  CAST(NULL AS text)
FROM fresh
UNION ALL
SELECT 'won', CAST("id" AS text), "fencingToken", "attempt", NULL, NULL, NULL, NULL, NULL, NULL,
  -- a function, for it sees what was committed until the row was locked: a checkpoint, maybe, that came after we began
  ${previous_function}("runs", "id", CAST(:owner_token AS uuid))
FROM taken
UNION ALL
SELECT CASE WHEN "ownerToken" = CAST(:owner_token AS uuid) AND "status" = 'RUNNING' THEN 'mine' ELSE 'lost' END,
  CAST("id" AS text), "fencingToken", "attempt", CAST("status" AS text), "owner", ${started_us}, ${modified_us},
  ${finished_us}, "leaseMs",
  CASE WHEN "ownerToken" = CAST(:owner_token AS uuid) AND "status" = 'RUNNING'
    THEN ${previous_function}("runs", "id", CAST(:owner_token AS uuid)) END
FROM seen WHERE NOT EXISTS (SELECT FROM fresh) AND NOT EXISTS (SELECT FROM taken)
UNION ALL
SELECT 'removed', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM barred

-- name: heartbeat
-- Renew one lease by hand. Touches no indexed column.
WITH renewed AS (
  UPDATE ${table} SET "modifiedAt" = clock_timestamp()
  WHERE "id" = CAST(:id AS uuid) AND "ownerToken" = CAST(:owner_token AS uuid) AND "status" = 'RUNNING'
  RETURNING "id"
)
SELECT 'done' FROM renewed
UNION ALL
SELECT CASE WHEN "ownerToken" = CAST(:owner_token AS uuid) THEN CAST("status" AS text)
  -- a function, for who holds a lease needs no right on what operators did
  WHEN ${released_function}("id", CAST(:owner_token AS uuid)) THEN 'released' ELSE 'taken' END
FROM ${table} WHERE "id" = CAST(:id AS uuid) AND NOT EXISTS (SELECT FROM renewed)

-- name: renew
-- Renew all live leases of a service at once; answer only for those that were not renewed, and say why.
WITH asked AS (
  SELECT "n", "id", "ownerToken"
  FROM unnest(CAST(:ids AS uuid[]), CAST(:owner_tokens AS uuid[])) WITH ORDINALITY AS a ("id", "ownerToken", "n")
), mine AS (
  SELECT run."id" FROM ${table} AS run JOIN asked ON run."id" = asked."id"
  WHERE run."ownerToken" = asked."ownerToken" AND run."status" = 'RUNNING'
  -- a row that somebody has locked holds up no other; a guard (key share) does not count as locked
  FOR NO KEY UPDATE OF run SKIP LOCKED
), renewed AS (
  UPDATE ${table} AS run SET "modifiedAt" = clock_timestamp() FROM mine WHERE run."id" = mine."id" RETURNING run."id"
)
SELECT asked."n", CASE WHEN run."id" IS NULL THEN 'gone' WHEN run."ownerToken" <> asked."ownerToken"
    THEN CASE WHEN ${released_function}(asked."id", asked."ownerToken") THEN 'released' ELSE 'taken' END
  WHEN run."status" = 'RUNNING' THEN 'locked' ELSE CAST(run."status" AS text) END
FROM asked LEFT JOIN ${table} AS run ON run."id" = asked."id"
WHERE asked."id" NOT IN (SELECT "id" FROM renewed)

-- name: settle
-- Record how a run ended, for its current owner only; else say whose it is now.
WITH settled AS (
  UPDATE ${table} SET "status" = CAST(:status AS ${status_enum}), "data" = CAST(:data AS jsonb),
    "modifiedAt" = clock_timestamp(), "finishedAt" = clock_timestamp(), "outcome" = CAST(:outcome AS varchar),
    "retryAt" = clock_timestamp() + make_interval(secs => CAST(:retry_ms AS bigint) / 1000.0)
  WHERE "id" = CAST(:id AS uuid) AND "ownerToken" = CAST(:owner_token AS uuid) AND "status" = 'RUNNING'
  RETURNING "id"
)
SELECT 'done' FROM settled
UNION ALL
SELECT CASE WHEN "ownerToken" = CAST(:owner_token AS uuid) THEN CAST("status" AS text)
  -- a function, for who holds a lease needs no right on what operators did
  WHEN ${released_function}("id", CAST(:owner_token AS uuid)) THEN 'released' ELSE 'taken' END
FROM ${table} WHERE "id" = CAST(:id AS uuid) AND NOT EXISTS (SELECT FROM settled)

-- name: guard
-- Sent in a caller's transaction: until that ends nobody can take the run over, and our own renewals are not blocked.
WITH guarded AS (
  SELECT "id" FROM ${table}
  WHERE "id" = CAST(:id AS uuid) AND "ownerToken" = CAST(:owner_token AS uuid) AND "status" = 'RUNNING'
  -- a takeover changes a unique column, and so conflicts with this lock; a renewal does not
  FOR KEY SHARE
)
SELECT 'done' FROM guarded
UNION ALL
SELECT CASE WHEN "ownerToken" = CAST(:owner_token AS uuid) THEN CAST("status" AS text)
  -- a function, for who holds a lease needs no right on what operators did
  WHEN ${released_function}("id", CAST(:owner_token AS uuid)) THEN 'released' ELSE 'taken' END
FROM ${table} WHERE "id" = CAST(:id AS uuid) AND NOT EXISTS (SELECT FROM guarded)

-- name: checkpoint
-- Say how far the run has come, for its current owner only; else say whose it is now. In a caller's transaction it
-- guards the run, as above: the run's own row is locked, not written, so our renewals go on.
WITH held AS (
  SELECT "id", "attempt" FROM ${table}
  WHERE "id" = CAST(:id AS uuid) AND "ownerToken" = CAST(:owner_token AS uuid) AND "status" = 'RUNNING'
  FOR KEY SHARE
), saved AS (
  INSERT INTO ${checkpoints} ("runId", "attempt", "data", "savedAt")
  SELECT "id", "attempt", CAST(:data AS jsonb), clock_timestamp() FROM held
  ON CONFLICT ("runId") DO UPDATE
    SET "attempt" = excluded."attempt", "data" = excluded."data", "savedAt" = excluded."savedAt"
  RETURNING "runId"
)
SELECT 'done' FROM saved
UNION ALL
SELECT CASE WHEN "ownerToken" = CAST(:owner_token AS uuid) THEN CAST("status" AS text)
  -- a function, for who holds a lease needs no right on what operators did
  WHEN ${released_function}("id", CAST(:owner_token AS uuid)) THEN 'released' ELSE 'taken' END
FROM ${table} WHERE "id" = CAST(:id AS uuid) AND NOT EXISTS (SELECT FROM saved)

-- name: look_after_guest
-- Say what became of a run that was settled in a caller's transaction, without waiting for one that is still open.
WITH free AS (
  SELECT "id" FROM ${table}
  WHERE "id" = CAST(:id AS uuid) AND "ownerToken" = CAST(:owner_token AS uuid) AND "status" = 'RUNNING'
  FOR NO KEY UPDATE SKIP LOCKED
)
SELECT CASE WHEN "ownerToken" <> CAST(:owner_token AS uuid) THEN 'taken'
  WHEN "status" <> 'RUNNING' THEN CAST("status" AS text)
  WHEN EXISTS (SELECT FROM free) THEN 'RUNNING' ELSE 'locked' END
FROM ${table} WHERE "id" = CAST(:id AS uuid)

-- name: disown
-- Free what an acquire may have won while its answer was lost.
UPDATE ${table} SET "status" = 'FAIL', "data" = CAST(:data AS jsonb),
  "modifiedAt" = clock_timestamp(), "finishedAt" = clock_timestamp()
WHERE "ownerToken" = CAST(:owner_token AS uuid) AND "status" = 'RUNNING'
RETURNING "id"

-- name: list_runs
-- The runs whose lease began last, newest first.
SELECT ${run_columns} FROM ${table} AS run WHERE ${filters} ORDER BY "fencingToken" DESC LIMIT CAST(:limit AS bigint)

-- name: find_run_by_id
SELECT ${run_columns} FROM ${table} AS run WHERE "id" = CAST(:id AS uuid)

-- name: find_run_by_key
SELECT ${run_columns} FROM ${table} AS run WHERE "lockKey" = CAST(:lock_key AS varchar)

-- name: list_attempts_by_id
-- The attempts that were superseded, in their order.
SELECT ${attempt_columns} FROM ${attempts} WHERE "runId" = CAST(:id AS uuid) ORDER BY "attempt"

-- name: list_attempts_by_key
SELECT ${attempt_columns} FROM ${attempts}
WHERE "runId" = (SELECT "id" FROM ${table} WHERE "lockKey" = CAST(:lock_key AS varchar)) ORDER BY "attempt"

-- name: look
-- See how the runs stand that are waited for, all in one statement.
SELECT run."lockKey",
  CASE WHEN run."status" = 'SUCCESS' THEN 'done'
    WHEN run."status" = 'FAIL' OR (EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM run."modifiedAt")) * 1000
      > COALESCE(run."leaseMs", asked."leaseMs") THEN 'free'
    ELSE 'held' END,
  run."owner", CASE WHEN run."status" = 'SUCCESS' THEN CAST(run."data" AS text) END
FROM unnest(CAST(:lock_keys AS varchar[]), CAST(:lease_lengths_ms AS bigint[])) AS asked ("lockKey", "leaseMs")
JOIN ${table} AS run ON run."lockKey" = asked."lockKey"
