-- The statements of the outbox; in the form of queries.sql. A row is unsent while both "doneAt" and "deadAt" are null.
-- A claim is a token, good until "claimedUntil" on the database's clock; null says that it was given back or is over.

-- name: enqueue
-- Insert one row for a key, or say that it is there. Sent twice, it knows its own row by its token.
WITH seen AS MATERIALIZED (
  SELECT "enqueueToken" FROM ${outbox} WHERE "idempotencyKey" = CAST(:idempotency_key AS varchar)
), fresh AS (
  INSERT INTO ${outbox} ("idempotencyKey", "type", "payload", "enqueueToken")
  SELECT CAST(:idempotency_key AS varchar), CAST(:type AS varchar), CAST(:payload AS jsonb), CAST(:enqueue_token AS uuid)
  WHERE NOT EXISTS (SELECT FROM seen)
  -- waits for the end of a transaction that has inserted the key; never an error
  ON CONFLICT ("idempotencyKey") DO NOTHING
  RETURNING "id"
)
SELECT 'new' FROM fresh
UNION ALL
SELECT CASE WHEN "enqueueToken" = CAST(:enqueue_token AS uuid) THEN 'new' ELSE 'there' END FROM seen

-- name: claim
-- Claim the oldest unsent rows, of each type none behind one that must wait. Where there are none, nothing is written.
WITH RECURSIVE kinds AS (
  (SELECT "type" FROM ${outbox} WHERE "doneAt" IS NULL AND "deadAt" IS NULL ORDER BY "type" LIMIT 1)
  UNION ALL
  -- one probe of the index for each type, however many rows it has
  SELECT (
    SELECT later."type" FROM ${outbox} AS later
    WHERE later."doneAt" IS NULL AND later."deadAt" IS NULL AND later."type" > kinds."type"
    ORDER BY later."type" LIMIT 1
  )
  FROM kinds WHERE kinds."type" IS NOT NULL
), queue AS MATERIALIZED (
  SELECT ahead."id", ahead."type", row_number() OVER line AS "place",
    -- while one relay has claimed rows of a type, no other has; and nobody goes past a row that is not due
    bool_or(ahead."isHeld") OVER (PARTITION BY ahead."type") OR bool_or(ahead."isLater") OVER line AS "waits"
  FROM kinds CROSS JOIN LATERAL (
    SELECT unsent."id", unsent."type", unsent."dueAt" > clock_timestamp() AS "isLater",
      COALESCE(unsent."claimedUntil" > clock_timestamp() AND unsent."claimToken" <> CAST(:claim_token AS uuid), false)
        AS "isHeld"
    FROM ${outbox} AS unsent
    WHERE unsent."doneAt" IS NULL AND unsent."deadAt" IS NULL
      -- no equality, under which the planner may walk the primary key past all that was sent
      AND unsent."type" BETWEEN kinds."type" AND kinds."type"
    ORDER BY unsent."type", unsent."id" LIMIT CAST(:batch AS bigint)
  ) AS ahead
  WINDOW line AS (PARTITION BY ahead."type" ORDER BY ahead."id")
), wanted AS (
  SELECT "id" FROM queue WHERE NOT "waits" ORDER BY "id" LIMIT CAST(:batch AS bigint)
), locked AS (
  SELECT "id" FROM ${outbox}
  WHERE "id" = ANY (ARRAY(SELECT "id" FROM wanted))
    -- looked at again, in the row as it is now: another relay may have been faster
    AND "doneAt" IS NULL AND "deadAt" IS NULL AND "dueAt" <= clock_timestamp()
    AND ("claimedUntil" IS NULL OR "claimedUntil" <= clock_timestamp() OR "claimToken" = CAST(:claim_token AS uuid))
  FOR UPDATE SKIP LOCKED
), ranked AS (
  SELECT "id", queue."place", row_number() OVER (PARTITION BY queue."type" ORDER BY "id") AS "rank"
  FROM locked JOIN queue USING ("id")
), mine AS (
  -- no row behind one that could not be had
  SELECT "id", row_number() OVER (ORDER BY "id") = 1 AS "isFirst" FROM ranked WHERE "rank" = "place"
), claimed AS (
  UPDATE ${outbox} AS message SET "claimToken" = CAST(:claim_token AS uuid),
    "claimedUntil" = clock_timestamp() + CAST(:claim_ms AS bigint) * INTERVAL '1 millisecond',
    -- the first one is handed over next; a claim that is sent twice counts it once
    "attempt" = message."attempt" + CASE WHEN mine."isFirst" AND NOT COALESCE(
      message."claimToken" = CAST(:claim_token AS uuid) AND message."claimedUntil" IS NOT NULL, false) THEN 1 ELSE 0 END
  FROM mine WHERE message."id" = mine."id"
  RETURNING message."id", message."idempotencyKey", message."type", message."payload", message."attempt",
    message."enqueuedAt"
)
SELECT "id", "idempotencyKey", "type", CAST("payload" AS text), "attempt", ${enqueued_us} FROM claimed ORDER BY "id"

-- name: advance
-- Record what became of one row, and count the next one as handed over. Sent twice, it knows what it has done.
WITH settled AS (
  UPDATE ${outbox} SET "claimedUntil" = NULL,
    "doneAt" = CASE WHEN CAST(:outcome AS text) = 'sent' THEN clock_timestamp() END,
    "deadAt" = CASE WHEN CAST(:outcome AS text) = 'dead' THEN clock_timestamp() END,
    "dueAt" = clock_timestamp() + CAST(:pause_ms AS bigint) * INTERVAL '1 millisecond',
    "error" = COALESCE(CAST(:error AS text), "error")
  WHERE "id" = CAST(:id AS bigint)
    -- a relay that lost its claim settles nothing
    AND "claimToken" = CAST(:claim_token AS uuid) AND "claimedUntil" IS NOT NULL
    AND "doneAt" IS NULL AND "deadAt" IS NULL
  RETURNING "id"
), started AS (
  UPDATE ${outbox} SET "attempt" = "attempt" + 1,
    "claimedUntil" = clock_timestamp() + CAST(:claim_ms AS bigint) * INTERVAL '1 millisecond'
  WHERE "id" = CAST(:next_id AS bigint) AND EXISTS (SELECT FROM settled)
    AND "claimToken" = CAST(:claim_token AS uuid) AND "claimedUntil" IS NOT NULL
    AND "doneAt" IS NULL AND "deadAt" IS NULL
  RETURNING "id"
), kept AS (
  UPDATE ${outbox} SET "claimedUntil" = clock_timestamp() + CAST(:claim_ms AS bigint) * INTERVAL '1 millisecond'
  WHERE "id" = ANY (CAST(:kept_ids AS bigint[])) AND EXISTS (SELECT FROM settled)
    AND "claimToken" = CAST(:claim_token AS uuid) AND "claimedUntil" IS NOT NULL
    AND "doneAt" IS NULL AND "deadAt" IS NULL
), given_back AS (
  UPDATE ${outbox} SET "claimedUntil" = NULL
  WHERE "id" = ANY (CAST(:returned_ids AS bigint[]))
    AND "claimToken" = CAST(:claim_token AS uuid) AND "doneAt" IS NULL AND "deadAt" IS NULL
)
SELECT 'settled' FROM settled
UNION ALL
SELECT 'started' FROM started
UNION ALL
SELECT CASE WHEN message."claimedUntil" IS NULL THEN 'settled' ELSE 'started' END FROM ${outbox} AS message
WHERE NOT EXISTS (SELECT FROM settled) AND message."id" IN (CAST(:id AS bigint), CAST(:next_id AS bigint))
  AND message."claimToken" = CAST(:claim_token AS uuid)
  AND CASE WHEN message."id" = CAST(:id AS bigint) THEN message."claimedUntil" IS NULL
    ELSE message."claimedUntil" IS NOT NULL END

-- name: give_back
-- Let go of whatever unsent rows that token has claimed.
UPDATE ${outbox} SET "claimedUntil" = NULL
WHERE "claimToken" = CAST(:claim_token AS uuid) AND "claimedUntil" IS NOT NULL AND "doneAt" IS NULL AND "deadAt" IS NULL
RETURNING "id"

-- name: dead
-- The rows that were given up, oldest first.
SELECT "id", "idempotencyKey", "type", CAST("payload" AS text), "attempt", ${enqueued_us}, ${dead_us}, "error"
FROM ${outbox} WHERE "doneAt" IS NULL AND "deadAt" IS NOT NULL ORDER BY "id" LIMIT CAST(:limit AS bigint)

-- name: revive
-- Hand a row that was given up to the relays again, with all of its attempts.
UPDATE ${outbox} SET "deadAt" = NULL, "attempt" = 0, "dueAt" = clock_timestamp(), "claimedUntil" = NULL
WHERE "id" = CAST(:id AS bigint) AND "doneAt" IS NULL AND "deadAt" IS NOT NULL
RETURNING "id"

-- name: discard
-- Give a row up for good. It stays until it is pruned, so that its key is still refused.
UPDATE ${outbox} SET "doneAt" = clock_timestamp()
WHERE "id" = CAST(:id AS bigint) AND "doneAt" IS NULL AND "deadAt" IS NOT NULL
RETURNING "id"

-- name: prune
-- Delete some of the rows that have been done with for long enough.
DELETE FROM ${outbox} WHERE "id" = ANY (ARRAY(
  SELECT "id" FROM ${outbox}
  WHERE "doneAt" < clock_timestamp() - CAST(:keep_ms AS bigint) * INTERVAL '1 millisecond'
  ORDER BY "doneAt" LIMIT CAST(:limit AS bigint)
  -- several relays prune at once
  FOR UPDATE SKIP LOCKED
))
RETURNING "id"
