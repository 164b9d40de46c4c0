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
SELECT CASE WHEN "ownerToken" = CAST(:owner_token AS uuid) THEN CAST("status" AS text) ELSE 'taken' END
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
SELECT asked."n", CASE WHEN run."id" IS NULL THEN 'gone' WHEN run."ownerToken" <> asked."ownerToken" THEN 'taken'
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
SELECT CASE WHEN "ownerToken" = CAST(:owner_token AS uuid) THEN CAST("status" AS text) ELSE 'taken' END
FROM ${table} WHERE "id" = CAST(:id AS uuid) AND NOT EXISTS (SELECT FROM settled)
