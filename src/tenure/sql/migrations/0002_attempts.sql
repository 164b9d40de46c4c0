-- How each attempt stood when the next one took the run over: FAIL, or RUNNING when its lease had run out.
CREATE TABLE ${attempts} (
  "runId" uuid NOT NULL,
  "attempt" integer NOT NULL,
  "fencingToken" bigint NOT NULL,
  "owner" varchar(256),
  "status" ${status_enum} NOT NULL,
  "leaseMs" bigint,
  "startedAt" timestamptz,
  "endedAt" timestamptz NOT NULL,
  "data" jsonb,
  CONSTRAINT ${attempts_pkey} PRIMARY KEY ("runId", "attempt"),
  CONSTRAINT ${attempts_fkey} FOREIGN KEY ("runId") REFERENCES ${table} ("id") ON DELETE CASCADE
);

-- How far a run has come, whichever attempt said so last. A table of its own: a caller's transaction that saves a
-- checkpoint holds this row until it ends, and our renewals of the run's row go on meanwhile.
CREATE TABLE ${checkpoints} (
  "runId" uuid NOT NULL,
  "attempt" integer NOT NULL,
  "data" jsonb NOT NULL,
  "savedAt" timestamptz NOT NULL,
  CONSTRAINT ${checkpoints_pkey} PRIMARY KEY ("runId"),
  CONSTRAINT ${checkpoints_fkey} FOREIGN KEY ("runId") REFERENCES ${table} ("id") ON DELETE CASCADE
) WITH (fillfactor = 50);

-- Remember the attempt that is being superseded, whoever takes the run over. What was in "data" while a later attempt
-- ran is that of an earlier one, so only a failed attempt has any.
CREATE FUNCTION ${remember_function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $remember$
BEGIN
  EXECUTE format($query$
    INSERT INTO %I.%I ("runId", "attempt", "fencingToken", "owner", "status", "leaseMs", "startedAt", "endedAt", "data")
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING
  $query$, TG_TABLE_SCHEMA, TG_TABLE_NAME || '_attempts')
  USING OLD."id", OLD."attempt", OLD."fencingToken", OLD."owner", OLD."status", OLD."leaseMs", OLD."startedAt",
    COALESCE(OLD."finishedAt", OLD."modifiedAt"), CASE WHEN OLD."status" <> 'RUNNING' THEN OLD."data" END;
  RETURN NEW;
END
$remember$;

CREATE TRIGGER ${attempts_trigger} BEFORE UPDATE OF "ownerToken" ON ${table} FOR EACH ROW
  -- it always has one, but so it is tied to a column of ours: who drops that takes the trigger along, or is refused
  WHEN (OLD."ownerToken" IS DISTINCT FROM NEW."ownerToken" AND OLD."fencingToken" IS NOT NULL)
  EXECUTE FUNCTION ${remember_function}();

-- Tell the owner of a run how the attempt before stood, and how far the run has come; nobody without its token.
-- Called by the statement that takes the run over, once the row is locked: being volatile it sees what was committed up
-- to then, where the statement itself would see only what was there when it began.
CREATE FUNCTION ${previous_function}("runs" oid, "run" uuid, "token" uuid) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $previous$
DECLARE
  "place" name;
  "named" name;
  "found" text;
BEGIN
  SELECT n.nspname, c.relname INTO "place", "named"
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = "runs";
  EXECUTE format($query$
    SELECT CAST(jsonb_build_object(
      'attempt', run."attempt" - 1,
      'status', COALESCE(was."status", 'RUNNING'),
      'fencing_token', was."fencingToken",
      'holder', was."owner",
      'lease_ms', was."leaseMs",
      'started_us', CASE WHEN isfinite(was."startedAt") THEN CAST(EXTRACT(EPOCH FROM was."startedAt") * 1000000 AS bigint) END,
      'ended_us', CASE WHEN isfinite(was."endedAt") THEN CAST(EXTRACT(EPOCH FROM was."endedAt") * 1000000 AS bigint) END,
      'data', was."data",
      'checkpoint', reached."data",
      'saved_us', CAST(EXTRACT(EPOCH FROM reached."savedAt") * 1000000 AS bigint)
    ) AS text)
    FROM %1$I.%2$I AS run
    LEFT JOIN %1$I.%3$I AS was ON was."runId" = run."id" AND was."attempt" = run."attempt" - 1
    LEFT JOIN %1$I.%4$I AS reached ON reached."runId" = run."id"
    WHERE run."id" = $1 AND run."ownerToken" = $2 AND run."attempt" > 1
  $query$, "place", "named", "named" || '_attempts', "named" || '_checkpoints') INTO "found" USING "run", "token";
  RETURN "found";
END
$previous$;

GRANT EXECUTE ON FUNCTION ${previous_function}(oid, uuid, uuid) TO PUBLIC;
