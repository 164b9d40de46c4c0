"""The statements of those who look on and act, for one table of runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final
from zlib import crc32

from tenure.statements import Query, Table, compile_query, microseconds, named_blocks

OPERATING: Final = "operating.sql"

_STATUSES: Final = ("RUNNING", "SUCCESS", "FAIL")
_UNFINISHED = '"status" <> \'SUCCESS\' AND "scheduledAt" IS NOT NULL AND "outcome" IS DISTINCT FROM \'exhausted\''
_HAS_SUCCEEDED = "\"status\" = 'SUCCESS' AND COALESCE(\"outcome\", 'succeeded') = 'succeeded'"
_LARGEST: Final = "9223372036854775807"
_BEGAN = 'COALESCE({of}."startedAt", {of}."createdAt")'
_HAS_OUTCOME = (
    "COALESCE(run.\"outcome\", CASE run.\"status\" WHEN 'SUCCESS' THEN 'succeeded' WHEN 'FAIL' THEN 'failed' END) "
    "= CAST(:outcome AS varchar)"
)
_CLOCK: Final = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint)"
# Tokens are drawn and clocks are read in one statement, but not in one instant: a minute is room for that.
_SOONER = "to_timestamp(EXTRACT(EPOCH FROM CAST(:since AS timestamptz)) - 60)"
_LATER = "to_timestamp(EXTRACT(EPOCH FROM CAST(:until AS timestamptz)) + 60)"
_ACTION_DATA = "jsonb_build_object('{word}', true, 'by', CAST(:by AS text), 'reason', CAST(:reason AS text))"


@dataclass(frozen=True, slots=True)
class Within:
    """Say which filters a listing has; those that an index serves, and the others."""

    code: bool = False
    status: str | None = None
    before: bool = False
    since: bool = False
    until: bool = False
    outcome: bool = False
    holder: bool = False
    type: bool = False


class OperatingStatements:
    """Hold the statements of `sql/operating.sql`, ready to be sent; `service.table` names the table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        for name in ("overview", "tick", "release", "retry", "skip", "pause", "resume", "trigger"):
            setattr(self, name, _compiled(table, name))

    overview: Query
    tick: Query
    release: Query
    retry: Query
    skip: Query
    pause: Query
    resume: Query
    trigger: Query

    def history(self, within: Within) -> Query:
        """Give the page of runs for these filters."""
        return _filtered(self.table, "history", within)

    def timeline(self, *, by_code: bool) -> Query:
        """Give the runs of a span of time, of one job or of all."""
        return _filtered(self.table, "timeline", Within(code=by_code, since=True, until=True))

    def life(self, *, by_id: bool) -> Query:
        """Give a run's whole life, by its id or its lock key."""
        wanted = 'run."id" = CAST(:id AS uuid)' if by_id else 'run."lockKey" = CAST(:lock_key AS varchar)'
        return _compiled(self.table, "life", is_wanted=wanted)


@cache
def _filtered(table: Table, name: str, within: Within) -> Query:
    if within.status not in (None, *_STATUSES):
        raise ValueError(f"There is no status {within.status!r}.")
    of_code = 'run."code" = CAST(:code AS varchar)' if within.code else "true"
    # an index of unfinished runs knows no codes
    by_code = within.code and within.status in (None, "SUCCESS")
    along = _span(within, by_code=by_code) + ([] if by_code else [of_code])
    # a literal, so that a partial index can serve it
    along += [f"run.\"status\" = '{within.status}'"] if within.status else []
    fits = _fits(within)
    return _compiled(
        table, name,
        steps=(_steps("since_steps", _SOONER) if within.since else "")
        + (_steps("until_steps", _LATER) if within.until else ""),
        within=" AND ".join(along + (fits if name == "timeline" else [])),
        fits=" AND ".join(fits) or "true",
        of_code=of_code,
        newest_first='run."code" DESC, run."fencingToken" DESC' if by_code else 'run."fencingToken" DESC',
    )  # fmt: skip


def _span(within: Within, *, by_code: bool) -> list[str]:
    """Give the conditions on the fencing token; with the code in one comparison they leave the planner one index.

    It takes that of all jobs' tokens otherwise, where it thinks that a run of this job must soon come by.
    """
    lows = ['(SELECT max("low") FROM since_steps)'] if within.since else []
    highs = ['(SELECT min("high") FROM until_steps)'] if within.until else []
    highs += ["CAST(:before AS bigint)"] if within.before else []
    if by_code:
        low, high = (*lows, "-1")[0], f"LEAST({', '.join([*highs, _LARGEST])})"
        return [
            f'(run."code", run."fencingToken") > (CAST(:code AS varchar), {low})',
            f'(run."code", run."fencingToken") < (CAST(:code AS varchar), {high})',
        ]
    return [f'run."fencingToken" > {low}' for low in lows] + [f'run."fencingToken" < {high}' for high in highs]


def _fits(within: Within) -> list[str]:
    """Give the conditions that no index serves."""
    began = _BEGAN.format(of="run")
    fits = [f"{began} >= CAST(:since AS timestamptz)"] if within.since else []
    fits += [f"{began} <= CAST(:until AS timestamptz)"] if within.until else []
    fits += [_HAS_OUTCOME] if within.outcome else []
    fits += ['run."owner" = CAST(:holder AS varchar)'] if within.holder else []
    fits += ['run."type" = CAST(:type AS ${type_enum})'] if within.type else []
    return fits


def _steps(name: str, instant: str) -> str:
    """Find where an instant lies on the axis of fencing tokens by halving it: some thirty probes of its index.

    At the end all runs up to the largest "low" began before the instant, all from the least "high" on at it or later.
    """
    return f"""{name} ("low", "high") AS (
  SELECT COALESCE(min("fencingToken"), 0) - 1, COALESCE(max("fencingToken"), 0) + 1 FROM ${{table}}
  UNION ALL
  SELECT CASE WHEN probe."before" THEN probe."fencingToken" ELSE "low" END,
    CASE WHEN probe."before" THEN "high" ELSE halved."middle" + 1 END
  FROM {name} CROSS JOIN LATERAL (SELECT "low" + ("high" - "low" - 1) / 2 AS "middle") AS halved
  LEFT JOIN LATERAL (
    SELECT next."fencingToken", next."fencingToken" < "high" AND {_BEGAN.format(of="next")} < {instant} AS "before"
    FROM ${{table}} AS next WHERE next."fencingToken" > halved."middle" ORDER BY next."fencingToken" LIMIT 1
  ) AS probe ON true
  WHERE "high" - "low" > 1
), """


@cache
def _compiled(table: Table, name: str, **fragments: str) -> Query:
    text = named_blocks(OPERATING)[name]
    # The fragments hold parameters and names of their own, so they go in before those are replaced.
    for fragment, sql in {**fragments, **_fragments()}.items():
        text = text.replace(f"${{{fragment}}}", sql)
    variant = "".join(fragments.values())
    named = f"{name}_{crc32(variant.encode()):08x}" if variant else name
    return compile_query(named, text, {**table.identifiers(), "clock_us": _CLOCK})


def _fragments() -> dict[str, str]:
    """Give what the statements have in common, in the order in which it goes in."""
    age_ms = '(EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM node."seenAt")) * 1000'
    alive = f"{age_ms} <= CAST(:alive_ms AS bigint)"
    has_nodes = 'EXISTS (SELECT FROM ${{nodes}} AS node WHERE node."jobs" ->> {code} IS NOT NULL AND ' + alive + ")"
    paused = '(SELECT "pausedAt" IS NOT NULL FROM ${{jobs}} AS job WHERE job."code" = {code})'
    of_run, of_code = 'run."code"', "CAST(:code AS varchar)"
    return {
        "job_noted": _JOB_NOTED,
        "kept": _KEPT,
        "skipped_data": _ACTION_DATA.format(word="skipped"),
        "has_succeeded": _HAS_SUCCEEDED,
        "unfinished": _UNFINISHED,
        "glance_or_null": f'CASE WHEN run."id" IS NOT NULL THEN CAST(json_build_array({_glance("run")}) AS text) END',
        "glance": _glance("run"),
        "other_glance": _glance("other"),
        "job_standing_of_code": f"{paused.format(code=of_code)}, {has_nodes.format(code=of_code)}",
        "job_standing": f"{paused.format(code=of_run)}, {has_nodes.format(code=of_run)}",
        "job_has_nodes": has_nodes.format(code=of_code),
        "job_facts": _JOB_FACTS,
        "node_fields": _NODE_FIELDS,
        "attempt_fields": _ATTEMPT_FIELDS,
        "action_fields": _ACTION_FIELDS,
    }


def _glance(of: str) -> str:
    instants = ("createdAt", "startedAt", "modifiedAt", "finishedAt", "retryAt")
    return (
        f'{of}."id", {of}."code", {of}."runKey", {microseconds("scheduledAt", of)}, {of}."status", {of}."outcome", '
        f'{of}."attempt", {of}."owner", {of}."fencingToken", {", ".join(microseconds(each, of) for each in instants)}, '
        f'{of}."leaseMs", CASE WHEN {of}."status" = \'FAIL\' THEN left({of}."data" ->> \'error\', 300) END'
    )


_JOB_FACTS: Final = (
    'CASE WHEN job."code" IS NOT NULL THEN json_build_array(job."code", job."schedule", job."timezone", '
    f'job."fingerprint", job."policy", {microseconds("knownSince", "job")}, {microseconds("watermark", "job")}, '
    f'{microseconds("pausedAt", "job")}, job."pausedBy", job."pauseReason", {microseconds("registeredAt", "job")}, '
    'job."registeredBy") END'
)
_NODE_FIELDS: Final = (
    f'node."node", node."label", {microseconds("startedAt", "node")}, {microseconds("seenAt", "node")}, '
    'CAST((EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM node."seenAt")) * 1000000 AS bigint), '
    'node."clockOffsetMs", node."jobs"'
)
_ATTEMPT_FIELDS: Final = (
    'attempt."attempt", attempt."status", attempt."outcome", attempt."fencingToken", attempt."owner", '
    f'attempt."leaseMs", {microseconds("startedAt", "attempt")}, {microseconds("endedAt", "attempt")}, attempt."data"'
)
_ACTION_FIELDS: Final = (
    'action."action", action."code", action."runId", action."attempt", '
    f'{microseconds("at", "action")}, action."by", action."reason"'
)
_JOB_NOTED: Final = """noted AS (
  INSERT INTO ${actions} ("action", "code", "by", "reason", "actionToken")
  SELECT CAST(:kind AS varchar), "code", CAST(:by AS varchar), CAST(:reason AS text), CAST(:action_token AS uuid)
  FROM changed
)"""
_KEPT: Final = """kept AS (
  INSERT INTO ${attempts} ("runId", "attempt", "fencingToken", "owner", "status", "leaseMs", "startedAt", "endedAt",
    "data", "outcome")
  SELECT run."id", run."attempt", run."fencingToken", run."owner", run."status", run."leaseMs", run."startedAt",
    COALESCE(run."finishedAt", run."modifiedAt"), run."data", run."outcome"
  FROM ${table} AS run JOIN free ON free."id" = run."id" WHERE run."attempt" > 0
  ON CONFLICT DO NOTHING
)"""
