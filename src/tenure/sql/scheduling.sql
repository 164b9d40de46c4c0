-- The scheduler's statements, as those of queries.sql: one named block is one statement and one round trip.
-- A decision about a job (a claim, a retake where runs must not overlap) takes its turn: it locks the job's row, without
-- waiting, only if nobody has decided since its snapshot, and counts "turn" up. So of two decisions that were made on
-- the same sight of things one stands, and the other is made again.

-- name: register
-- Make jobs and their node known; a newer registration rules. Writes nothing about a job that is as it was.
WITH asked AS MATERIALIZED (
  SELECT "code", "schedule", "timezone", "fingerprint", CAST("policy" AS jsonb) AS "policy"
  FROM unnest(CAST(:codes AS varchar[]), CAST(:schedules AS text[]), CAST(:timezones AS text[]),
    CAST(:fingerprints AS text[]), CAST(:policies AS text[])) AS a ("code", "schedule", "timezone", "fingerprint", "policy")
), before AS MATERIALIZED (
  SELECT job.* FROM ${jobs} AS job JOIN asked ON job."code" = asked."code"
), stored AS (
  INSERT INTO ${jobs} AS job ("code", "schedule", "timezone", "fingerprint", "policy", "registeredAt", "registeredBy")
  SELECT asked."code", asked."schedule", asked."timezone", asked."fingerprint", asked."policy", clock_timestamp(),
    CAST(:label AS varchar)
  FROM asked LEFT JOIN before ON before."code" = asked."code"
  WHERE before."code" IS NULL
    OR (before."fingerprint", before."schedule", before."timezone", before."policy")
      IS DISTINCT FROM (asked."fingerprint", asked."schedule", asked."timezone", asked."policy")
  -- in one order, so that two nodes that register at once do not wait for each other
  ORDER BY asked."code"
  ON CONFLICT ("code") DO UPDATE SET "schedule" = EXCLUDED."schedule", "timezone" = EXCLUDED."timezone",
    "fingerprint" = EXCLUDED."fingerprint", "policy" = EXCLUDED."policy", "registeredAt" = EXCLUDED."registeredAt",
    "registeredBy" = EXCLUDED."registeredBy", "turn" = job."turn" + 1,
    -- a job that was known by its removed rows alone is new now, and never runs for the past
    "knownSince" = CASE WHEN job."fingerprint" IS NULL THEN clock_timestamp() ELSE job."knownSince" END,
    "watermark" = CASE WHEN job."fingerprint" IS NULL THEN GREATEST(job."watermark", clock_timestamp())
      ELSE job."watermark" END
  RETURNING job.*
), standing AS (
  SELECT * FROM stored UNION ALL SELECT * FROM before WHERE "code" NOT IN (SELECT "code" FROM stored)
), node AS (
  INSERT INTO ${nodes} ("node", "label", "jobs")
  VALUES (CAST(:node AS uuid), CAST(:label AS varchar), CAST(:jobs AS jsonb))
  ON CONFLICT ("node") DO UPDATE SET "seenAt" = clock_timestamp(), "label" = EXCLUDED."label", "jobs" = EXCLUDED."jobs"
)
SELECT CAST(NULL AS text), ${clock_us}, CAST(NULL AS text), CAST(NULL AS bigint), CAST(NULL AS text), CAST(NULL AS boolean),
  CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS bigint), CAST(NULL AS text)
UNION ALL
SELECT job."code", ${job_watermark_us}, job."fingerprint", ${job_registered_us}, job."registeredBy",
  job."pausedAt" IS NOT NULL,
  was."schedule", was."timezone", was."fingerprint", ${was_registered_us}, was."registeredBy"
FROM standing AS job
LEFT JOIN before AS was ON was."code" = job."code" AND was."fingerprint" <> job."fingerprint"

-- name: beat
-- Say that a node lives, and hear how its jobs stand.
WITH node AS (
  INSERT INTO ${nodes} ("node", "label", "clockOffsetMs", "jobs")
  VALUES (CAST(:node AS uuid), CAST(:label AS varchar), CAST(:offset_ms AS bigint), CAST(:jobs AS jsonb))
  ON CONFLICT ("node") DO UPDATE SET "seenAt" = clock_timestamp(), "label" = EXCLUDED."label",
    "clockOffsetMs" = EXCLUDED."clockOffsetMs", "jobs" = EXCLUDED."jobs"
)
SELECT CAST(NULL AS text), ${clock_us}, CAST(NULL AS text), CAST(NULL AS bigint), CAST(NULL AS text), CAST(NULL AS boolean)
UNION ALL
SELECT job."code", ${job_watermark_us}, job."fingerprint", ${job_registered_us}, job."registeredBy",
  job."pausedAt" IS NOT NULL
FROM ${jobs} AS job WHERE job."code" = ANY (CAST(:codes AS varchar[]))

-- name: claim
-- Decide a tick, and win its run if it is to run. A claim of a tick that is decided writes nothing at all.
WITH job AS MATERIALIZED (
  SELECT "watermark", "turn", "fingerprint", "pausedAt", EXTRACT(EPOCH FROM clock_timestamp()) AS "clock_s"
  FROM ${jobs} WHERE "code" = CAST(:code AS varchar) AND "fingerprint" IS NOT NULL
), seen AS MATERIALIZED (
  SELECT "id", "status", "ownerToken", "attempt", "fencingToken", "owner", "startedAt", "modifiedAt", "finishedAt",
    "scheduledAt", "outcome", COALESCE("leaseMs", CAST(:lease_ms AS bigint)) AS "leaseMs"
  FROM ${table} WHERE "lockKey" = CAST(:lock_key AS varchar)
), others AS MATERIALIZED (
  -- expired or not: a run whose node died is taken up again, and then is under way
  SELECT count(*) FILTER (WHERE "status" = 'RUNNING') AS "active",
    count(*) FILTER (WHERE "outcome" = 'queued') AS "waiting"
  FROM ${table} WHERE "code" = CAST(:code AS varchar) AND ${unfinished} AND "lockKey" <> CAST(:lock_key AS varchar)
), verdict AS MATERIALIZED (
  SELECT CASE
    -- the statement may be sent twice
    WHEN EXISTS (SELECT FROM seen WHERE "ownerToken" = CAST(:owner_token AS uuid)) THEN 'mine'
    WHEN job."turn" IS NULL THEN 'unknown'
    WHEN job."fingerprint" <> CAST(:fingerprint AS text) THEN 'superseded'
    WHEN (EXTRACT(EPOCH FROM CAST(:tick AS timestamptz)) - job."clock_s") * 1000 > CAST(:tolerance_ms AS bigint) THEN 'early'
    WHEN CAST(:tick AS timestamptz) <= job."watermark" THEN 'decided'
    WHEN job."watermark" < CAST(:previous_tick AS timestamptz) THEN 'gap'
    WHEN job."pausedAt" IS NOT NULL THEN 'paused'
    WHEN (job."clock_s" - EXTRACT(EPOCH FROM CAST(:tick AS timestamptz))) * 1000 > CAST(:max_lateness_ms AS bigint)
      THEN 'too late'
    WHEN CAST(:overlap AS text) = 'allow' THEN 'won'
    -- who waits goes first
    WHEN (SELECT "active" = 0 AND ("waiting" = 0 OR CAST(:overlap AS text) <> 'queue') FROM others) THEN 'won'
    WHEN CAST(:catch_up AS boolean) THEN 'busy'
    WHEN CAST(:overlap AS text) = 'queue' AND (SELECT "waiting" - CASE WHEN "active" = 0 THEN 1 ELSE 0 END < 1 FROM others)
      THEN 'queued'
    ELSE 'overlapped' END AS "verdict"
  FROM (SELECT) AS one LEFT JOIN job ON true
), turned AS (
  SELECT "code" FROM ${jobs} WHERE "code" = CAST(:code AS varchar) AND "turn" = (SELECT "turn" FROM job)
    AND (SELECT "verdict" FROM verdict) IN ('paused', 'too late', 'overlapped', 'queued', 'won')
  FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
  UPDATE ${jobs} AS job SET "watermark" = GREATEST(job."watermark", CAST(:tick AS timestamptz)), "turn" = job."turn" + 1
  FROM turned WHERE job."code" = turned."code" RETURNING job."watermark"
), fresh AS (
  INSERT INTO ${table} ("lockKey", "code", "name", "type", "status", "ownerToken", "attempt", "leaseMs", "owner", "runKey",
    "startedAt", "finishedAt", "scheduledAt", "outcome")
  SELECT CAST(:lock_key AS varchar), CAST(:code AS varchar), CAST(:name AS varchar), 'SCHEDULE',
    CAST(CASE "verdict" WHEN 'won' THEN 'RUNNING' WHEN 'queued' THEN 'FAIL' ELSE 'SUCCESS' END AS ${status_enum}),
    CAST(:owner_token AS uuid), CASE "verdict" WHEN 'won' THEN 1 ELSE 0 END,
    CASE "verdict" WHEN 'won' THEN CAST(:lease_ms AS bigint) END, CASE "verdict" WHEN 'won' THEN CAST(:owner AS varchar) END,
    CAST(:run_key AS varchar), CASE "verdict" WHEN 'won' THEN clock_timestamp() END,
    CASE WHEN "verdict" NOT IN ('won', 'queued') THEN clock_timestamp() END, CAST(:tick AS timestamptz),
    CASE WHEN "verdict" <> 'won' THEN "verdict" END
  FROM verdict, moved WHERE NOT EXISTS (SELECT FROM seen)
  ON CONFLICT ("lockKey") DO NOTHING
  RETURNING "id", "fencingToken", "attempt"
), unnoted AS (
  -- a NestJS node, or a plain acquire, has the run: write the tick into its row, so that it is finished if it dies
  SELECT "id" FROM ${table}
  WHERE "lockKey" = CAST(:lock_key AS varchar) AND "scheduledAt" IS NULL AND EXISTS (SELECT FROM seen)
    AND (EXISTS (SELECT FROM moved) OR (SELECT "verdict" FROM verdict) = 'decided')
  FOR NO KEY UPDATE SKIP LOCKED
), noted AS (
  UPDATE ${table} AS run SET "scheduledAt" = CAST(:tick AS timestamptz), "runKey" = CAST(:run_key AS varchar)
  FROM unnoted WHERE run."id" = unnoted."id" RETURNING run."id"
)
SELECT CASE
    WHEN "verdict" = 'decided' AND seen."id" IS NULL THEN 'removed'
    WHEN "verdict" = 'decided' AND seen."scheduledAt" IS NULL AND NOT EXISTS (SELECT FROM noted) THEN 'not noted'
    WHEN "verdict" NOT IN ('paused', 'too late', 'overlapped', 'queued', 'won') THEN "verdict"
    WHEN NOT EXISTS (SELECT FROM moved) THEN 'contended'
    WHEN fresh."id" IS NOT NULL THEN "verdict"
    WHEN seen."id" IS NULL OR (seen."scheduledAt" IS NULL AND NOT EXISTS (SELECT FROM noted)) THEN 'not noted'
    ELSE 'lost' END,
  CAST(COALESCE(fresh."id", seen."id") AS text), COALESCE(fresh."fencingToken", seen."fencingToken"),
  COALESCE(fresh."attempt", seen."attempt"), CAST(seen."status" AS text), seen."owner", ${started_us}, ${modified_us},
  ${finished_us}, seen."leaseMs", seen."outcome",
  (SELECT ${watermark_us} FROM (SELECT "watermark" FROM moved UNION ALL SELECT "watermark" FROM job LIMIT 1) AS now_at),
  ${clock_us}, CAST(NULL AS text)
FROM verdict LEFT JOIN seen ON true LEFT JOIN fresh ON true

-- name: decide
-- Decide ticks that are not to run, each with a row that says why, if the watermark is still where it was.
WITH job AS MATERIALIZED (
  SELECT "watermark", "turn", "fingerprint" FROM ${jobs}
  WHERE "code" = CAST(:code AS varchar) AND "fingerprint" IS NOT NULL
), verdict AS MATERIALIZED (
  SELECT CASE WHEN job."turn" IS NULL THEN 'unknown'
    WHEN job."fingerprint" <> CAST(:fingerprint AS text) THEN 'superseded'
    WHEN job."watermark" <> CAST(:watermark AS timestamptz) THEN 'decided' ELSE 'won' END AS "verdict"
  FROM (SELECT) AS one LEFT JOIN job ON true
), turned AS (
  SELECT "code" FROM ${jobs} WHERE "code" = CAST(:code AS varchar) AND "turn" = (SELECT "turn" FROM job)
    AND (SELECT "verdict" FROM verdict) = 'won'
  FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
  UPDATE ${jobs} AS job SET "watermark" = GREATEST(job."watermark", CAST(:moves_to AS timestamptz)),
    "turn" = job."turn" + 1
  FROM turned WHERE job."code" = turned."code" RETURNING job."watermark"
), asked AS MATERIALIZED (
  SELECT a."lockKey", a."runKey", a."tick", run."id", run."scheduledAt"
  FROM unnest(CAST(:lock_keys AS varchar[]), CAST(:run_keys AS varchar[]), CAST(:ticks AS timestamptz[]))
    AS a ("lockKey", "runKey", "tick")
  LEFT JOIN ${table} AS run ON run."lockKey" = a."lockKey"
), fresh AS (
  INSERT INTO ${table} ("lockKey", "code", "type", "status", "ownerToken", "attempt", "runKey", "startedAt", "finishedAt",
    "scheduledAt", "outcome")
  SELECT asked."lockKey", CAST(:code AS varchar), 'SCHEDULE', 'SUCCESS', gen_random_uuid(), 0, asked."runKey", NULL,
    clock_timestamp(), asked."tick", CAST(:outcome AS varchar)
  FROM asked, moved WHERE asked."id" IS NULL
  ORDER BY asked."tick"
  ON CONFLICT ("lockKey") DO NOTHING
  RETURNING "id"
), unnoted AS (
  SELECT run."id", asked."tick", asked."runKey" FROM ${table} AS run JOIN asked ON run."id" = asked."id"
  WHERE run."scheduledAt" IS NULL AND EXISTS (SELECT FROM moved)
  FOR NO KEY UPDATE OF run SKIP LOCKED
), noted AS (
  UPDATE ${table} AS run SET "scheduledAt" = unnoted."tick", "runKey" = unnoted."runKey"
  FROM unnoted WHERE run."id" = unnoted."id"
)
SELECT CASE WHEN "verdict" = 'won' AND NOT EXISTS (SELECT FROM moved) THEN 'contended' ELSE "verdict" END,
  (SELECT count(*) FROM fresh),
  (SELECT ${watermark_us} FROM (SELECT "watermark" FROM moved UNION ALL SELECT "watermark" FROM job LIMIT 1) AS now_at),
  ${clock_us}
FROM verdict

-- name: unfinished
-- The runs that may be taken up now, oldest first for each job; the first row tells the clock, and when the next is due.
WITH asked AS MATERIALIZED (
  SELECT a."code", a."leaseMs"
  FROM unnest(CAST(:codes AS varchar[]), CAST(:lease_lengths_ms AS bigint[])) AS a ("code", "leaseMs")
  JOIN ${jobs} AS job ON job."code" = a."code" AND job."pausedAt" IS NULL
)
SELECT CAST(NULL AS text), CAST(NULL AS text), CAST(NULL AS text), ${clock_us}, CAST(NULL AS integer), CAST(NULL AS boolean),
  CAST(NULL AS text),
  (SELECT ${retry_us} FROM (
    SELECT min(run."retryAt") AS "retryAt" FROM ${table} AS run JOIN asked ON run."code" = asked."code"
    WHERE ${unfinished} AND "status" = 'FAIL' AND "retryAt" > clock_timestamp()) AS next_one)
UNION ALL
(SELECT asked."code", due."lockKey", due."runKey", due."scheduled_us", due."attempt", due."died", due."outcome", NULL
FROM asked CROSS JOIN LATERAL (
  SELECT "lockKey", "runKey", ${scheduled_us} AS "scheduled_us", "attempt", "status" = 'RUNNING' AS "died", "outcome"
  FROM ${table} AS run WHERE run."code" = asked."code" AND ${unfinished}
    AND CASE "status" WHEN 'FAIL' THEN COALESCE("retryAt" <= clock_timestamp(), true)
      ELSE (EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM "modifiedAt")) * 1000
        > COALESCE(run."leaseMs", asked."leaseMs") END
  ORDER BY run."scheduledAt" LIMIT CAST(:each AS bigint)) AS due
ORDER BY due."scheduled_us" LIMIT CAST(:limit AS bigint))

-- name: retake
-- Take an unfinished run up again, or write that its attempts are used up.
WITH job AS MATERIALIZED (
  SELECT "turn", "pausedAt" FROM ${jobs} WHERE "code" = CAST(:code AS varchar)
), seen AS MATERIALIZED (
  SELECT "id", tableoid AS "runs", "status", "ownerToken", "attempt", "fencingToken", "owner", "startedAt", "modifiedAt",
    "finishedAt", "outcome", COALESCE("leaseMs", CAST(:lease_ms AS bigint)) AS "leaseMs", ${takeable} AS "takeable"
  FROM ${table} WHERE "lockKey" = CAST(:lock_key AS varchar)
), verdict AS MATERIALIZED (
  SELECT CASE
    WHEN seen."ownerToken" = CAST(:owner_token AS uuid) AND seen."status" = 'RUNNING' THEN 'mine'
    WHEN seen."id" IS NULL OR job."turn" IS NULL THEN 'unknown'
    WHEN NOT seen."takeable" THEN 'lost'
    WHEN job."pausedAt" IS NOT NULL THEN 'paused'
    WHEN seen."attempt" >= CAST(:max_attempts AS integer) THEN 'exhausted'
    WHEN CAST(:overlap AS text) <> 'allow' AND EXISTS (
      SELECT FROM ${table} WHERE "code" = CAST(:code AS varchar) AND ${unfinished} AND "status" = 'RUNNING'
        AND "lockKey" <> CAST(:lock_key AS varchar)) THEN 'busy'
    ELSE 'won' END AS "verdict"
  FROM (SELECT) AS one LEFT JOIN job ON true LEFT JOIN seen ON true
), turned AS (
  SELECT "code" FROM ${jobs} WHERE "code" = CAST(:code AS varchar) AND "turn" = (SELECT "turn" FROM job)
    AND (SELECT "verdict" FROM verdict) = 'won' AND CAST(:overlap AS text) <> 'allow'
  FOR NO KEY UPDATE SKIP LOCKED
), free AS (
  SELECT "id" FROM ${table}
  WHERE "lockKey" = CAST(:lock_key AS varchar) AND "ownerToken" = (SELECT "ownerToken" FROM seen)
    -- looked at again once the row is locked: it may have been renewed or settled meanwhile
    AND ${takeable}
    AND CASE (SELECT "verdict" FROM verdict) WHEN 'exhausted' THEN true
      WHEN 'won' THEN CAST(:overlap AS text) = 'allow' OR EXISTS (SELECT FROM turned) ELSE false END
  -- a guard or any other lock on the row is a loss, at once
  FOR UPDATE SKIP LOCKED
), moved AS (
  UPDATE ${jobs} AS job SET "turn" = job."turn" + 1 FROM turned WHERE job."code" = turned."code" AND EXISTS (SELECT FROM free)
), spent AS (
  UPDATE ${table} AS run SET "status" = 'FAIL', "outcome" = 'exhausted', "retryAt" = NULL,
    "modifiedAt" = clock_timestamp(), "finishedAt" = clock_timestamp()
  FROM free, verdict WHERE run."id" = free."id" AND "verdict" = 'exhausted'
), taken AS (
  UPDATE ${table} AS run SET "status" = 'RUNNING', "ownerToken" = CAST(:owner_token AS uuid), "fencingToken" = DEFAULT,
    "attempt" = run."attempt" + 1, "leaseMs" = CAST(:lease_ms AS bigint), "owner" = CAST(:owner AS varchar),
    "modifiedAt" = clock_timestamp(), "startedAt" = clock_timestamp(), "finishedAt" = NULL, "outcome" = NULL,
    "retryAt" = NULL
  FROM free, verdict WHERE run."id" = free."id" AND "verdict" = 'won'
  RETURNING run.tableoid AS "runs", run."id", run."fencingToken", run."attempt"
)
SELECT CASE WHEN "verdict" IN ('won', 'exhausted') AND NOT EXISTS (SELECT FROM free) THEN 'contended' ELSE "verdict" END,
  CAST(seen."id" AS text), COALESCE(taken."fencingToken", seen."fencingToken"), COALESCE(taken."attempt", seen."attempt"),
  CAST(seen."status" AS text), seen."owner", ${started_us}, ${modified_us}, ${finished_us}, seen."leaseMs", seen."outcome",
  (SELECT ${watermark_us} FROM ${jobs} WHERE "code" = CAST(:code AS varchar)), ${clock_us},
  CASE WHEN taken."id" IS NOT NULL OR "verdict" = 'mine'
    THEN ${previous_function}(seen."runs", seen."id", CAST(:owner_token AS uuid)) END
FROM verdict LEFT JOIN seen ON true LEFT JOIN taken ON true

-- name: trigger_run
-- Leave a run for whoever runs the job; only of a job that is registered.
WITH job AS MATERIALIZED (
  SELECT FROM ${jobs} WHERE "code" = CAST(:code AS varchar) AND "fingerprint" IS NOT NULL
), fresh AS (
  INSERT INTO ${table} ("lockKey", "code", "type", "status", "ownerToken", "attempt", "runKey", "startedAt", "scheduledAt",
    "outcome")
  SELECT CAST(:lock_key AS varchar), CAST(:code AS varchar), 'SCHEDULE', 'FAIL', CAST(:owner_token AS uuid), 0,
    CAST(:run_key AS varchar), NULL, COALESCE(CAST(:scheduled_at AS timestamptz), clock_timestamp()), 'triggered'
  FROM job ON CONFLICT ("lockKey") DO NOTHING RETURNING "scheduledAt"
)
SELECT EXISTS (SELECT FROM job), run."fresh", ${scheduled_us}
FROM (SELECT) AS one LEFT JOIN (
  SELECT true AS "fresh", "scheduledAt" FROM fresh
  UNION ALL
  -- the statement may be sent twice
  SELECT "ownerToken" = CAST(:owner_token AS uuid), "scheduledAt" FROM ${table} WHERE "lockKey" = CAST(:lock_key AS varchar)
) AS run ON true

-- name: pause
UPDATE ${jobs} SET "pausedAt" = clock_timestamp(), "pausedBy" = CAST(:by AS varchar), "pauseReason" = CAST(:reason AS text),
  "turn" = "turn" + 1
WHERE "code" = CAST(:code AS varchar) RETURNING "code"

-- name: resume
UPDATE ${jobs} SET "pausedAt" = NULL, "pausedBy" = CAST(:by AS varchar), "pauseReason" = CAST(:reason AS text),
  "turn" = "turn" + 1
WHERE "code" = CAST(:code AS varchar) RETURNING "code"

-- name: stand
-- Tell the time, and whether a job is paused.
SELECT ${clock_us}, job."code" IS NOT NULL, ${job_paused_us}, job."pausedBy", job."pauseReason"
FROM (SELECT) AS one LEFT JOIN ${jobs} AS job ON job."code" = CAST(:code AS varchar)

-- name: forget_node
DELETE FROM ${nodes} WHERE "node" = CAST(:node AS uuid) RETURNING CAST("node" AS text)

-- name: list_jobs
-- All jobs, with the labels and fingerprints of the living nodes that run each of them.
SELECT job."code", job."schedule", job."timezone", job."fingerprint", CAST(job."policy" AS text), ${job_known_us},
  ${job_watermark_us}, ${job_paused_us}, job."pausedBy", job."pauseReason", ${job_registered_us}, job."registeredBy",
  (SELECT CAST(jsonb_agg(jsonb_build_array(node."label", node."jobs" ->> job."code") ORDER BY node."label") AS text)
    FROM ${nodes} AS node WHERE node."jobs" ->> job."code" IS NOT NULL
      AND (EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM node."seenAt")) * 1000 <= CAST(:alive_ms AS bigint))
FROM ${jobs} AS job ORDER BY job."code" COLLATE "C"

-- name: list_nodes
SELECT CAST("node" AS text), "label", ${started_us}, ${seen_us},
  CAST((EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM "seenAt")) * 1000000 AS bigint), "clockOffsetMs",
  CAST("jobs" AS text)
FROM ${nodes} ORDER BY "seenAt" DESC, "label"

-- name: prune
-- Remove old runs among those whose lease began next after :after, and keep their ticks decided.
WITH looked AS MATERIALIZED (
  SELECT "id", "fencingToken", COALESCE("startedAt", "createdAt") AS "began",
    CASE WHEN "runKey" ~ '${tick_pattern}' THEN COALESCE("scheduledAt",
      -- a day that its month does not have is counted on into the next
      (CAST(left("runKey", 8) || '01' AS date) + (CAST(substr("runKey", 9, 2) AS integer) - 1)
        + CAST(substr("runKey", 12, 12) AS time)) AT TIME ZONE 'UTC') END AS "tick"
  FROM ${table} WHERE "fencingToken" > CAST(:after AS bigint) ORDER BY "fencingToken" LIMIT CAST(:limit AS bigint)
), old AS MATERIALIZED (
  SELECT run."id", run."code", looked."tick"
  FROM ${table} AS run JOIN looked ON run."id" = looked."id"
  -- a tick that is still to come would stop its job until then
  WHERE run."type" = 'SCHEDULE' AND (looked."tick" <= clock_timestamp() OR run."runKey" LIKE 'manual:%')
    -- never a run that is still to be finished
    AND CASE WHEN run."status" = 'SUCCESS' THEN CAST(:keep_ms AS bigint)
      WHEN run."status" = 'FAIL' AND run."outcome" = 'exhausted' THEN CAST(:keep_failed_ms AS bigint) END
      < (EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM COALESCE(run."finishedAt", run."modifiedAt"))) * 1000
  FOR UPDATE OF run SKIP LOCKED
), reached AS (
  SELECT "code", max("tick") AS "tick" FROM old WHERE "tick" IS NOT NULL GROUP BY "code"
), moved AS (
  INSERT INTO ${jobs} AS job ("code", "watermark")
  SELECT reached."code", reached."tick" FROM reached
  WHERE NOT EXISTS (SELECT FROM ${jobs} AS job WHERE job."code" = reached."code" AND job."watermark" >= reached."tick")
  ORDER BY reached."code"
  ON CONFLICT ("code") DO UPDATE SET "watermark" = GREATEST(job."watermark", EXCLUDED."watermark"),
    "turn" = job."turn" + 1
  RETURNING "code"
), gone AS (
  -- only once the jobs are locked: nobody who decides about a job then waits for a row that is being removed
  DELETE FROM ${table} AS run USING old WHERE run."id" = old."id" AND (SELECT count(*) FROM moved) >= 0
  RETURNING run."id"
), silent AS (
  DELETE FROM ${nodes}
  WHERE CAST(:after AS bigint) = 0 AND EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM "seenAt") > 86400
), forgotten AS (
  -- what was done to a job; what was done to a run goes with it
  DELETE FROM ${actions} WHERE CAST(:after AS bigint) = 0 AND "runId" IS NULL
    AND (EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM "at")) * 1000 > CAST(:keep_failed_ms AS bigint)
)
SELECT (SELECT count(*) FROM gone), COALESCE(max("fencingToken"), CAST(:after AS bigint)),
  -- those after the last began later still
  COALESCE(count(*) = CAST(:limit AS bigint) AND (EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM max("began")))
    * 1000 > LEAST(CAST(:keep_ms AS bigint), CAST(:keep_failed_ms AS bigint)), false)
FROM looked
