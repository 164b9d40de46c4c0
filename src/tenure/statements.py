"""Load the SQL of `sql/`, name the table in it, and number its parameters.

Values travel as parameters, identifiers are quoted here once; a statement text is therefore a constant of a service.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

from tenure.errors import InvalidJobOptionsError

DEFAULT_SCHEMA = "public"
DEFAULT_TABLE = "job-scheduler"
SIDE_TABLES = ("attempts", "checkpoints", "outbox", "jobs", "nodes", "actions")
"""What our tables beside the table of runs are called, after its name and an underscore."""

QUERIES = "queries.sql"

SQL = os.path.join(os.path.dirname(__file__), "sql")
"""The folder. `importlib.resources` takes an eighth of the time that it takes to import us, `pathlib` a twentieth."""

_TOKEN = re.compile(r"\$\{(?P<identifier>\w+)\}|(?<!:):(?P<parameter>[a-z_]\w*)")
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)

_IDENTIFIER_LIMIT = 63
_TABLE_LIMIT = 40  # the longest name that is made of it adds 22 characters

_RUN_COLUMNS = (
    'CAST("id" AS text), "lockKey", "code", "runKey", "name", CAST("type" AS text), CAST("status" AS text), "attempt", '
    '"fencingToken", "owner", "leaseMs", CAST("data" AS text), {created}, {started}, {modified}, {finished}, '
    'CAST({age} AS bigint), {scheduled}, "outcome", {retry}, '
    '(SELECT CAST(reached."data" AS text) FROM {checkpoints} AS reached WHERE reached."runId" = run."id"), '
    '(SELECT {saved} FROM {checkpoints} AS reached WHERE reached."runId" = run."id")'
)
_ATTEMPT_COLUMNS = (
    '"attempt", CAST("status" AS text), "fencingToken", "owner", "leaseMs", {started}, {ended}, CAST("data" AS text)'
)


_HAS_OUTCOME = (
    "COALESCE(\"outcome\", CASE \"status\" WHEN 'SUCCESS' THEN 'succeeded' WHEN 'FAIL' THEN 'failed' END) "
    "= CAST(:outcome AS varchar)"
)


def microseconds(column: str, of: str | None = None) -> str:
    """Give an instant as whole microseconds since the epoch: a float's text would depend on the session."""
    instant = f'"{column}"' if of is None else f'{of}."{column}"'
    return f"CAST(CASE WHEN {instant} IS NOT NULL THEN {_clamped(f'EXTRACT(EPOCH FROM {instant})')} END AS bigint)"


def _clamped(seconds: str) -> str:
    """Keep infinity, and what lies beyond a bigint, at its ends."""
    return f"LEAST(GREATEST(({seconds}) * 1000000, -9e18), 9e18)"


@dataclass(frozen=True, slots=True)
class Query:
    """Hold one statement: its text with `$1` placeholders and the names of the parameters behind them."""

    name: str
    text: bytes
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Name the table of runs and what belongs to it, quoted."""

    schema: str = DEFAULT_SCHEMA
    name: str = DEFAULT_TABLE

    def __post_init__(self) -> None:
        _check_identifier("schema", self.schema, _IDENTIFIER_LIMIT)
        _check_identifier("table", self.name, _TABLE_LIMIT)

    @property
    def quoted(self) -> str:
        """Give `"schema"."table"`."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def migrations_quoted(self) -> str:
        """Give the quoted name of the table that remembers which migrations were applied."""
        return self.beside("migrations")

    def beside(self, name: str) -> str:
        """Give the quoted name of what stands beside the table of runs and is called after it."""
        return f"{quote(self.schema)}.{quote(f'{self.name}_{name}')}"

    def side_tables(self) -> dict[str, str]:
        """Give the quoted names of the tables beside the table of runs, by their unquoted ones."""
        return {f"{self.name}_{name}": self.beside(name) for name in SIDE_TABLES}

    def identifiers(self) -> dict[str, str]:
        """Give what each `${…}` of the SQL files stands for."""
        own = (
            "pkey",
            "lock_key_key",
            "owner_token_key",
            "fencing_token_key",
            "code_idx",
            "unfinished_idx",
            "reclaim_trigger",
            "outbox_pkey",
            "outbox_key_key",
            "outbox_unsent_idx",
            "outbox_dead_idx",
            "outbox_done_idx",
            "attempts_pkey",
            "attempts_fkey",
            "attempts_trigger",
            "checkpoints_pkey",
            "checkpoints_fkey",
            "due_idx",
            "jobs_pkey",
            "nodes_pkey",
            "succeeded_idx",
            "exhausted_idx",
            "actions_pkey",
            "actions_token_key",
            "actions_fkey",
            "actions_run_idx",
            "actions_code_idx",
        )
        beside = ("type_enum", "status_enum", *SIDE_TABLES)
        functions = ("reclaim", "remember", "previous", "decided", "released")
        return {
            **{name: self.beside(name) for name in beside},
            **{f"{name}_function": self.beside(name) for name in functions},
            **{suffix: quote(f"{self.name}_{suffix}") for suffix in own},
            "table": self.quoted,
            "started_us": microseconds("startedAt"),
            "modified_us": microseconds("modifiedAt"),
            "finished_us": microseconds("finishedAt"),
            "enqueued_us": microseconds("enqueuedAt"),
            "dead_us": microseconds("deadAt"),
            "run_columns": _RUN_COLUMNS.format(
                created=microseconds("createdAt"),
                started=microseconds("startedAt"),
                modified=microseconds("modifiedAt"),
                finished=microseconds("finishedAt"),
                checkpoints=self.beside("checkpoints"),
                saved=microseconds("savedAt"),
                scheduled=microseconds("scheduledAt"),
                retry=microseconds("retryAt"),
                age=_clamped('EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM "modifiedAt")'),
            ),
            "attempt_columns": _ATTEMPT_COLUMNS.format(
                started=microseconds("startedAt"), ended=microseconds("endedAt")
            ),
        }


class Statements:
    """Hold the statements of one table, ready to be sent."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._identifiers = table.identifiers()
        self.acquire = self._query("acquire")
        self.heartbeat = self._query("heartbeat")
        self.renew = self._query("renew")
        self.settle = self._query("settle")
        self.guard = self._query("guard")
        self.checkpoint = self._query("checkpoint")
        self.look_after_guest = self._query("look_after_guest")
        self.disown = self._query("disown")
        self.look = self._query("look")
        self.find_run_by_id = self._query("find_run_by_id")
        self.find_run_by_key = self._query("find_run_by_key")
        self.list_attempts_by_id = self._query("list_attempts_by_id")
        self.list_attempts_by_key = self._query("list_attempts_by_key")

    def list_runs(self, *, by_code: bool, status: str | None, by_outcome: bool = False) -> Query:
        """Give the listing for these filters; the status is a literal, so that the partial index can serve it."""
        filters = ['"code" = CAST(:code AS varchar)'] if by_code else []
        if status is not None:
            filters.append(f"\"status\" = '{status}'")
        if by_outcome:
            filters.append(_HAS_OUTCOME)
        text = _bind(named_blocks(QUERIES)["list_runs"], {"filters": " AND ".join(filters) or "true"})
        return compile_query("list_runs", text, self._identifiers)

    def _query(self, name: str) -> Query:
        return compile_query(name, named_blocks(QUERIES)[name], self._identifiers)


class OutboxStatements:
    """Hold the statements of one outbox, ready to be sent."""

    def __init__(self, table: Table) -> None:
        self._identifiers = table.identifiers()
        self.enqueue = self._query("enqueue")
        self.claim = self._query("claim")
        self.advance = self._query("advance")
        self.give_back = self._query("give_back")
        self.dead = self._query("dead")
        self.revive = self._query("revive")
        self.discard = self._query("discard")
        self.prune = self._query("prune")

    def _query(self, name: str) -> Query:
        return compile_query(name, named_blocks("outbox.sql")[name], self._identifiers)


def quote(identifier: str) -> str:
    """Quote an identifier for SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def schema_script(table: Table) -> str:
    """Give the whole present schema, to be printed or run by hand."""
    return _bind(read_sql("schema.sql"), table.identifiers())


def migration_script(name: str, table: Table) -> str:
    """Give one migration, by its file name."""
    return _bind(read_sql(f"migrations/{name}"), table.identifiers())


def read_sql(path: str) -> str:
    """Read a file of `sql/`."""
    with open(os.path.join(SQL, path), encoding="utf-8") as file:
        return file.read()


def compile_query(name: str, text: str, identifiers: dict[str, str]) -> Query:
    """Replace `${identifier}` and number `:parameter`, in one pass, so that no replaced text is read again."""
    parameters: list[str] = []

    def replacement(match: re.Match[str]) -> str:
        if identifier := match["identifier"]:
            return identifiers[identifier]
        if (parameter := match["parameter"]) not in parameters:
            parameters.append(parameter)
        return f"${parameters.index(parameter) + 1}"

    return Query(name, _TOKEN.sub(replacement, text).encode(), tuple(parameters))


def _bind(text: str, identifiers: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: identifiers.get(match[1], match[0]), text)


@cache
def named_blocks(path: str) -> dict[str, str]:
    """Give the statements of a file of `sql/`, by name."""
    parts = _NAME.split(read_sql(path))[1:]
    return {name: _COMMENT.sub("", block).strip() for name, block in zip(parts[::2], parts[1::2], strict=True)}


def _check_identifier(field: str, value: str, limit: int) -> None:
    if not isinstance(value, str):
        raise InvalidJobOptionsError(f"{field} must be a string, not {type(value).__name__}.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidJobOptionsError(
            f"{field} holds an unpaired surrogate; PostgreSQL cannot name anything so."
        ) from None
    if not 1 <= size <= limit or "\0" in value:
        raise InvalidJobOptionsError(f"{field} must be 1 to {limit} bytes of UTF-8 without NUL; this one has {size}.")
