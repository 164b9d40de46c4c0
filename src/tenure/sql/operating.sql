-- The statements of those who look on and act, as those of queries.sql: one named block is one statement, one snapshot
-- and one round trip. What is shown is read along indexes and bounded, so it costs what is shown, not what history costs.
-- A larger fencing token is a later lease (C4.3): it is the axis of time here, and no index on a time is needed.

-- name: overview
-- Everything at a glance: rows of a kind and a JSON array.
WITH RECURSIVE met ("code", "n") AS (
  (SELECT "code", 1 FROM ${table} ORDER BY "code" LIMIT 1)
  UNION ALL
  -- one probe of the index for each code, however many runs it has
  SELECT (SELECT later."code" FROM ${table} AS later WHERE later."code" > met."code" ORDER BY later."code" LIMIT 1), "n" + 1
  FROM met WHERE met."code" IS NOT NULL AND "n" <= CAST(:most_jobs AS bigint)
), listed AS MATERIALIZED (
  SELECT "code", false AS "registered" FROM met
    WHERE "code" IS NOT NULL AND NOT EXISTS (SELECT FROM ${jobs} AS job WHERE job."code" = met."code")
  UNION ALL
  SELECT "code", "fingerprint" IS NOT NULL FROM ${jobs}
), codes AS MATERIALIZED (
  SELECT "code" FROM listed ORDER BY "registered" DESC, "code" COLLATE "C" LIMIT CAST(:most_jobs AS bigint)
), held AS MATERIALIZED (
  SELECT run.* FROM ${table} AS run WHERE run."status" = 'RUNNING'
  ORDER BY run."fencingToken" DESC LIMIT CAST(:most_leases AS bigint) + 1
)
SELECT 'clock', CAST(json_build_array(${clock_us}, (SELECT count(*) FROM listed)) AS text)
UNION ALL
SELECT 'node', CAST(json_build_array(${node_fields}) AS text) FROM ${nodes} AS node
UNION ALL
SELECT 'job', CAST(json_build_array(codes."code", ${job_facts}, recent."runs", succeeded."run", unfinished."runs",
  exhausted."count") AS text)
FROM codes LEFT JOIN ${jobs} AS job ON job."code" = codes."code"
LEFT JOIN LATERAL (
  SELECT json_agg(json_build_array(${glance})) AS "runs" FROM (
    -- compared in one, or the planner walks all jobs' runs where it thinks that enough of this job must soon come by
    SELECT * FROM ${table} AS newest WHERE (newest."code", newest."fencingToken") > (codes."code", -1)
      AND (newest."code", newest."fencingToken") < (codes."code", 9223372036854775807)
    ORDER BY newest."code" DESC, newest."fencingToken" DESC LIMIT CAST(:each AS bigint)) AS run
) AS recent ON true
LEFT JOIN LATERAL (
  SELECT json_build_array(${glance}) AS "run" FROM (
    SELECT * FROM ${table} AS newest WHERE newest."code" = codes."code" AND ${has_succeeded}
    ORDER BY newest."fencingToken" DESC LIMIT 1) AS run
) AS succeeded ON true
LEFT JOIN LATERAL (
  SELECT json_agg(json_build_array(${glance})) AS "runs" FROM (
    SELECT * FROM ${table} AS oldest WHERE oldest."code" = codes."code" AND ${unfinished}
    ORDER BY oldest."scheduledAt" LIMIT CAST(:most_unfinished AS bigint)) AS run
) AS unfinished ON true
LEFT JOIN LATERAL (
  SELECT count(*) AS "count" FROM (
    SELECT FROM ${table} AS spent WHERE spent."code" = codes."code" AND spent."outcome" = 'exhausted'
    LIMIT CAST(:most_exhausted AS bigint)) AS counted
) AS exhausted ON true
UNION ALL
SELECT 'lease', CAST(json_build_array(json_build_array(${glance}), reached."data" -> 'done', reached."data" -> 'of') AS text)
FROM held AS run LEFT JOIN ${checkpoints} AS reached ON reached."runId" = run."id"

-- name: history
-- A page of runs, those whose lease began last first; each row tells where the walk has come to.
WITH RECURSIVE ${steps}page ("token") AS MATERIALIZED (
  -- it ends as soon as the page is full, and at the latest after so many runs
  SELECT "fencingToken" FROM (
    SELECT "fencingToken", ${fits} AS "fits" FROM ${table} AS run WHERE ${within}
    ORDER BY ${newest_first} LIMIT CAST(:looked AS bigint)) AS walked
  WHERE "fits" LIMIT CAST(:limit AS bigint)
), reached ("end") AS MATERIALIZED (
  SELECT CASE WHEN (SELECT count(*) FROM page) = CAST(:limit AS bigint) THEN (SELECT min("token") FROM page)
    ELSE (SELECT "fencingToken" FROM ${table} AS run WHERE ${within}
      ORDER BY ${newest_first} OFFSET CAST(:looked AS bigint) - 1 LIMIT 1) END
)
SELECT reached."end", ${run_columns}
FROM reached LEFT JOIN page ON true LEFT JOIN ${table} AS run ON run."fencingToken" = page."token"
ORDER BY run."fencingToken" DESC

-- name: timeline
-- The runs that began in a span, newest first, and those that are under way; the first row tells the clock.
WITH RECURSIVE ${steps}begun AS MATERIALIZED (
  SELECT "fencingToken" FROM ${table} AS run WHERE ${within} ORDER BY ${newest_first} LIMIT CAST(:limit AS bigint) + 1
), wanted AS MATERIALIZED (
  SELECT "fencingToken" FROM begun
  UNION
  (SELECT "fencingToken" FROM ${table} AS run WHERE "status" = 'RUNNING' AND ${of_code}
    AND COALESCE(run."startedAt", run."createdAt") <= CAST(:until AS timestamptz)
    ORDER BY "fencingToken" DESC LIMIT CAST(:limit AS bigint))
)
SELECT CAST(json_build_array(${clock_us}, (SELECT count(*) FROM begun)) AS text)
UNION ALL
(SELECT CAST(json_build_array(${glance}) AS text) FROM ${table} AS run
WHERE run."fencingToken" = ANY (ARRAY(SELECT "fencingToken" FROM wanted)) ORDER BY run."fencingToken" DESC)

-- name: life
-- A run, all its former attempts, and what operators did to it.
SELECT ${clock_us}, ${run_columns},
  (SELECT CAST(json_agg(json_build_array(${attempt_fields}) ORDER BY attempt."attempt") AS text)
    FROM ${attempts} AS attempt WHERE attempt."runId" = run."id"),
  (SELECT CAST(json_agg(json_build_array(${action_fields}) ORDER BY action."id") AS text)
    FROM ${actions} AS action WHERE action."runId" = run."id")
FROM ${table} AS run WHERE ${is_wanted}

-- name: tick
-- All that is known of one tick.
WITH run AS MATERIALIZED (
  SELECT * FROM ${table} WHERE "lockKey" = CAST(:lock_key AS varchar)
), job AS MATERIALIZED (
  SELECT * FROM ${jobs} WHERE "code" = CAST(:code AS varchar)
)
SELECT ${clock_us},
  (SELECT CAST(${job_facts} AS text) FROM job),
  (SELECT CAST(json_build_array(${glance}) AS text) FROM run),
  (SELECT CAST(json_agg(json_build_array(${action_fields}) ORDER BY action."id") AS text)
    FROM ${actions} AS action WHERE action."runId" = (SELECT "id" FROM run)),
  (SELECT CAST(json_build_array(${action_fields}) AS text) FROM ${actions} AS action
    WHERE action."code" = CAST(:code AS varchar) AND action."action" IN ('paused', 'resumed')
      AND action."at" <= COALESCE((SELECT COALESCE("finishedAt", "createdAt") FROM run), clock_timestamp())
    ORDER BY action."id" DESC LIMIT 1),
  (SELECT CAST(json_build_array(${other_glance}) AS text) FROM (
      SELECT * FROM ${table} AS before
      WHERE (before."code", before."fencingToken") < (CAST(:code AS varchar), (SELECT "fencingToken" FROM run))
        AND (before."code", before."fencingToken") > (CAST(:code AS varchar), -1)
      ORDER BY before."code" DESC, before."fencingToken" DESC LIMIT 50) AS other
    WHERE other."attempt" > 0 AND other."startedAt" <= (SELECT "createdAt" FROM run)
      AND (other."status" = 'RUNNING' OR other."finishedAt" >= (SELECT "createdAt" FROM run))
    ORDER BY other."fencingToken" DESC LIMIT 1),
  (SELECT CAST(json_agg(json_build_array(${node_fields})) AS text) FROM ${nodes} AS node)

-- name: release
-- End a lease: whoever had it is fenced at once, and the run may be taken up by anybody.
WITH done AS MATERIALIZED (
  -- the statement may be sent twice
  SELECT FROM ${actions} WHERE "actionToken" = CAST(:action_token AS uuid)
), seen AS MATERIALIZED (
  SELECT * FROM ${table} WHERE "id" = CAST(:id AS uuid)
), verdict AS MATERIALIZED (
  SELECT CASE WHEN EXISTS (SELECT FROM done) THEN 'done' WHEN seen."id" IS NULL THEN 'unknown'
    WHEN seen."status" <> 'RUNNING' THEN 'not running'
    WHEN seen."attempt" <> CAST(:attempt AS integer) THEN 'changed' ELSE 'acts' END AS "verdict"
  FROM (SELECT) AS one LEFT JOIN seen ON true
), free AS (
  SELECT run."id" FROM ${table} AS run JOIN seen ON run."id" = seen."id"
  WHERE (SELECT "verdict" FROM verdict) = 'acts'
    -- looked at again once the row is locked: it may have ended or been taken over meanwhile
    AND run."status" = 'RUNNING' AND run."ownerToken" = seen."ownerToken"
  FOR UPDATE OF run SKIP LOCKED
), noted AS (
  INSERT INTO ${actions} ("action", "code", "runId", "attempt", "by", "reason", "actionToken", "ownerToken")
  SELECT 'released', seen."code", seen."id", seen."attempt", CAST(:by AS varchar), CAST(:reason AS text),
    CAST(:action_token AS uuid), seen."ownerToken"
  FROM seen JOIN free ON free."id" = seen."id"
), released AS (
  UPDATE ${table} AS run SET "status" = 'FAIL', "ownerToken" = gen_random_uuid(), "outcome" = 'released', "retryAt" = NULL,
    "data" = jsonb_build_object('released', true, 'by', CAST(:by AS text), 'reason', CAST(:reason AS text)),
    "modifiedAt" = clock_timestamp(), "finishedAt" = clock_timestamp()
  FROM free WHERE run."id" = free."id"
)
SELECT CASE WHEN "verdict" <> 'acts' THEN "verdict" WHEN EXISTS (SELECT FROM free) THEN 'done' ELSE 'contended' END,
  ${clock_us}, run."code", ${glance_or_null}, ${job_standing}
FROM verdict LEFT JOIN seen AS run ON true

-- name: retry
-- Make a run that has ended due again, one more attempt.
WITH done AS MATERIALIZED (
  SELECT FROM ${actions} WHERE "actionToken" = CAST(:action_token AS uuid)
), seen AS MATERIALIZED (
  SELECT * FROM ${table} WHERE "id" = CAST(:id AS uuid)
), verdict AS MATERIALIZED (
  SELECT CASE WHEN EXISTS (SELECT FROM done) THEN 'done' WHEN seen."id" IS NULL THEN 'unknown'
    WHEN seen."status" = 'RUNNING' THEN 'running'
    WHEN seen."attempt" <> CAST(:attempt AS integer) THEN 'changed'
    -- a tick that never ran has nothing to do again
    WHEN seen."status" = 'SUCCESS' AND COALESCE(seen."outcome", 'succeeded') = 'succeeded' AND NOT CAST(:force AS boolean)
      THEN 'succeeded'
    WHEN seen."status" = 'FAIL' AND seen."outcome" IS DISTINCT FROM 'exhausted'
      AND COALESCE(seen."retryAt" <= clock_timestamp(), true) THEN 'due'
    ELSE 'acts' END AS "verdict"
  FROM (SELECT) AS one LEFT JOIN seen ON true
), free AS (
  SELECT run."id" FROM ${table} AS run JOIN seen ON run."id" = seen."id"
  WHERE (SELECT "verdict" FROM verdict) = 'acts'
    -- looked at again once the row is locked: somebody may have taken it, or acted on it
    AND run."status" = seen."status" AND run."ownerToken" = seen."ownerToken"
    AND run."outcome" IS NOT DISTINCT FROM seen."outcome"
  FOR UPDATE OF run SKIP LOCKED
), noted AS (
  INSERT INTO ${actions} ("action", "code", "runId", "attempt", "by", "reason", "actionToken")
  SELECT 'retried', seen."code", seen."id", seen."attempt", CAST(:by AS varchar), CAST(:reason AS text),
    CAST(:action_token AS uuid)
  FROM seen JOIN free ON free."id" = seen."id"
), ${kept}, retried AS (
  UPDATE ${table} AS run SET "status" = 'FAIL', "outcome" = 'retried', "retryAt" = NULL, "modifiedAt" = clock_timestamp()
  FROM free WHERE run."id" = free."id"
)
SELECT CASE WHEN "verdict" <> 'acts' THEN "verdict" WHEN EXISTS (SELECT FROM free) THEN 'done' ELSE 'contended' END,
  ${clock_us}, run."code", ${glance_or_null}, ${job_standing}
FROM verdict LEFT JOIN seen AS run ON true

-- name: skip
-- Decide that a tick does not run: with a row of its own, or on that of a run which waits. Never on one that runs or ran.
WITH done AS MATERIALIZED (
  SELECT FROM ${actions} WHERE "actionToken" = CAST(:action_token AS uuid)
), seen AS MATERIALIZED (
  SELECT * FROM ${table} WHERE "lockKey" = CAST(:lock_key AS varchar)
), job AS MATERIALIZED (
  SELECT "fingerprint", "watermark" FROM ${jobs} WHERE "code" = CAST(:code AS varchar) AND "fingerprint" IS NOT NULL
), verdict AS MATERIALIZED (
  SELECT CASE WHEN EXISTS (SELECT FROM done) THEN 'done'
    WHEN seen."status" = 'RUNNING' THEN 'running'
    WHEN seen."status" = 'SUCCESS' THEN 'ended'
    WHEN seen."status" = 'FAIL' THEN 'gives up'
    WHEN job."watermark" IS NULL THEN 'unknown'
    WHEN job."fingerprint" <> CAST(:fingerprint AS text) THEN 'superseded'
    WHEN CAST(:tick AS timestamptz) <= job."watermark" THEN 'decided' ELSE 'decides' END AS "verdict"
  FROM (SELECT) AS one LEFT JOIN seen ON true LEFT JOIN job ON true
), free AS (
  SELECT run."id" FROM ${table} AS run JOIN seen ON run."id" = seen."id"
  WHERE (SELECT "verdict" FROM verdict) = 'gives up'
    -- looked at again once the row is locked: somebody may have taken it
    AND run."status" = 'FAIL' AND run."ownerToken" = seen."ownerToken"
  FOR UPDATE OF run SKIP LOCKED
), fresh AS (
  -- the watermark stays: when it comes here, whoever moves it finds the row
  INSERT INTO ${table} ("lockKey", "code", "type", "status", "ownerToken", "attempt", "runKey", "startedAt", "finishedAt",
    "scheduledAt", "outcome", "data")
  SELECT CAST(:lock_key AS varchar), CAST(:code AS varchar), 'SCHEDULE', 'SUCCESS', gen_random_uuid(), 0,
    CAST(:run_key AS varchar), NULL, clock_timestamp(), CAST(:tick AS timestamptz), 'skipped', ${skipped_data}
  FROM verdict WHERE "verdict" = 'decides'
  ON CONFLICT ("lockKey") DO NOTHING
  RETURNING "id"
), noted AS (
  INSERT INTO ${actions} ("action", "code", "runId", "attempt", "by", "reason", "actionToken")
  SELECT 'skipped', CAST(:code AS varchar), chosen."id", COALESCE((SELECT "attempt" FROM seen), 0), CAST(:by AS varchar),
    CAST(:reason AS text), CAST(:action_token AS uuid)
  FROM (SELECT "id" FROM free UNION ALL SELECT "id" FROM fresh) AS chosen
), ${kept}, skipped AS (
  UPDATE ${table} AS run SET "status" = 'SUCCESS', "outcome" = 'skipped', "retryAt" = NULL, "data" = ${skipped_data},
    "modifiedAt" = clock_timestamp(), "finishedAt" = clock_timestamp()
  FROM free WHERE run."id" = free."id"
)
SELECT CASE WHEN "verdict" NOT IN ('gives up', 'decides') THEN "verdict"
    WHEN EXISTS (SELECT FROM free) OR EXISTS (SELECT FROM fresh) THEN 'done' ELSE 'contended' END,
  ${clock_us}, CAST(:code AS varchar), ${glance_or_null}, ${job_standing_of_code}
FROM verdict LEFT JOIN seen AS run ON true

-- name: pause
WITH done AS MATERIALIZED (
  SELECT FROM ${actions} WHERE "actionToken" = CAST(:action_token AS uuid)
), changed AS (
  UPDATE ${jobs} SET "pausedAt" = COALESCE("pausedAt", clock_timestamp()), "pausedBy" = CAST(:by AS varchar),
    "pauseReason" = CAST(:reason AS text), "turn" = "turn" + 1
  WHERE "code" = CAST(:code AS varchar) AND NOT EXISTS (SELECT FROM done) RETURNING "code"
), ${job_noted}
SELECT CASE WHEN EXISTS (SELECT FROM done) OR EXISTS (SELECT FROM changed) THEN 'done' ELSE 'unknown' END,
  ${clock_us}, CAST(:code AS varchar), CAST(NULL AS text), EXISTS (SELECT FROM changed), ${job_has_nodes}

-- name: resume
WITH done AS MATERIALIZED (
  SELECT FROM ${actions} WHERE "actionToken" = CAST(:action_token AS uuid)
), changed AS (
  UPDATE ${jobs} SET "pausedAt" = NULL, "pausedBy" = CAST(:by AS varchar), "pauseReason" = CAST(:reason AS text),
    "turn" = "turn" + 1
  WHERE "code" = CAST(:code AS varchar) AND NOT EXISTS (SELECT FROM done) RETURNING "code"
), ${job_noted}
SELECT CASE WHEN EXISTS (SELECT FROM done) OR EXISTS (SELECT FROM changed) THEN 'done' ELSE 'unknown' END,
  ${clock_us}, CAST(:code AS varchar), CAST(NULL AS text), false, ${job_has_nodes}

-- name: trigger
-- Leave a run for whoever runs the job; only of a job that is registered.
WITH done AS MATERIALIZED (
  SELECT FROM ${actions} WHERE "actionToken" = CAST(:action_token AS uuid)
), job AS MATERIALIZED (
  SELECT FROM ${jobs} WHERE "code" = CAST(:code AS varchar) AND "fingerprint" IS NOT NULL
), seen AS MATERIALIZED (
  SELECT * FROM ${table} WHERE "lockKey" = CAST(:lock_key AS varchar)
), fresh AS (
  INSERT INTO ${table} ("lockKey", "code", "type", "status", "ownerToken", "attempt", "runKey", "startedAt", "scheduledAt",
    "outcome")
  SELECT CAST(:lock_key AS varchar), CAST(:code AS varchar), 'SCHEDULE', 'FAIL', gen_random_uuid(), 0,
    CAST(:run_key AS varchar), NULL, COALESCE(CAST(:at AS timestamptz), clock_timestamp()), 'triggered'
  FROM job WHERE NOT EXISTS (SELECT FROM done)
  ON CONFLICT ("lockKey") DO NOTHING
  RETURNING *
), noted AS (
  INSERT INTO ${actions} ("action", "code", "runId", "attempt", "by", "reason", "actionToken")
  SELECT 'triggered', CAST(:code AS varchar), "id", 0, CAST(:by AS varchar), CAST(:reason AS text),
    CAST(:action_token AS uuid)
  FROM fresh
)
SELECT CASE WHEN EXISTS (SELECT FROM done) OR EXISTS (SELECT FROM fresh) THEN 'done'
    WHEN NOT EXISTS (SELECT FROM job) THEN 'unknown' ELSE 'contended' END,
  ${clock_us}, CAST(:code AS varchar), ${glance_or_null}, ${job_standing_of_code}
FROM (SELECT) AS one LEFT JOIN (SELECT * FROM fresh UNION ALL SELECT * FROM seen) AS run ON true
