-- What a scheduler writes about a run: the tick that it stands for, how it ended in detail, when it may be retried.
ALTER TABLE ${table}
  ADD COLUMN "scheduledAt" timestamptz,
  ADD COLUMN "outcome" varchar(16),
  ADD COLUMN "retryAt" timestamptz;

-- The runs that somebody has yet to finish: looking for them costs what they cost, not what history costs.
CREATE INDEX ${due_idx} ON ${table} ("code")
  WHERE "status" <> 'SUCCESS' AND "scheduledAt" IS NOT NULL AND "outcome" IS DISTINCT FROM 'exhausted';

-- Jobs as they were registered last. A job without a schedule is known only because rows of it were removed.
CREATE TABLE ${jobs} (
  "code" varchar(64) NOT NULL,
  "schedule" text,
  "timezone" text,
  "fingerprint" text,
  "policy" jsonb,
  "knownSince" timestamptz NOT NULL DEFAULT clock_timestamp(),
  "watermark" timestamptz NOT NULL DEFAULT clock_timestamp(),
  "turn" bigint NOT NULL DEFAULT 0,
  "pausedAt" timestamptz,
  "pausedBy" varchar(256),
  "pauseReason" text,
  "registeredAt" timestamptz,
  "registeredBy" varchar(256),
  CONSTRAINT ${jobs_pkey} PRIMARY KEY ("code")
) WITH (fillfactor = 50);

-- Schedulers as they were heard of last, with the jobs that each of them runs.
CREATE TABLE ${nodes} (
  "node" uuid NOT NULL,
  "label" varchar(256) NOT NULL,
  "startedAt" timestamptz NOT NULL DEFAULT clock_timestamp(),
  "seenAt" timestamptz NOT NULL DEFAULT clock_timestamp(),
  "clockOffsetMs" bigint,
  "jobs" jsonb NOT NULL,
  CONSTRAINT ${nodes_pkey} PRIMARY KEY ("node")
) WITH (fillfactor = 50);

-- Say whether a tick was decided, by its run key. For who acquires, so it needs no right on the jobs: being stable it
-- sees what the statement that calls it sees, and so the watermark of the same instant as the run's row.
CREATE FUNCTION ${decided_function}("of" varchar, "key" varchar) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  SELECT EXISTS (SELECT FROM ${jobs} WHERE "code" = "of"
    -- what is finer than a millisecond is cut off, as in a run key
    AND "key" COLLATE "C" <= to_char("watermark" AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') COLLATE "C");
END;

GRANT EXECUTE ON FUNCTION ${decided_function}(varchar, varchar) TO PUBLIC;

-- As before, and whoever takes a run over, forget how its last attempt ended in detail. A run that was only waiting to
-- be started had no attempt yet, so there is none to remember.
CREATE OR REPLACE FUNCTION ${remember_function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $remember$
BEGIN
  IF OLD."attempt" > 0 THEN
    EXECUTE format($query$
      INSERT INTO %I.%I ("runId", "attempt", "fencingToken", "owner", "status", "leaseMs", "startedAt", "endedAt", "data")
      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING
    $query$, TG_TABLE_SCHEMA, TG_TABLE_NAME || '_attempts')
    USING OLD."id", OLD."attempt", OLD."fencingToken", OLD."owner", OLD."status", OLD."leaseMs", OLD."startedAt",
      COALESCE(OLD."finishedAt", OLD."modifiedAt"), CASE WHEN OLD."status" <> 'RUNNING' THEN OLD."data" END;
  END IF;
  NEW."outcome" := NULL;
  NEW."retryAt" := NULL;
  RETURN NEW;
END
$remember$;
