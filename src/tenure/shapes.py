"""What the tables should look like: one entry each, so that what checks, adopts and hides them need not know them.

A table that a later migration brings is one more entry in `SHAPES`, and one more name in `statements.SIDE_TABLES`.
Tests compare the entries with what the migrations make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenure.statements import Table, quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Hold what one table must have. Names of indexes, triggers and the like are suffixes of the run table's name."""

    side: str | None
    """The name in `statements.SIDE_TABLES`; `None` for the table of runs itself."""
    migration: str
    """The migration that makes the table."""
    columns: Mapping[str, str]
    """Each column's type as `format_type` gives it; `{type_enum}` and `{status_enum}` stand for ours."""
    defaulted: tuple[str, ...] = ()
    """Columns that an INSERT of ours leaves out."""
    identity: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...]
    """What `ON CONFLICT` and the promises stand on."""
    indexes: tuple[str, ...] = ()
    foreign_keys: tuple[str, ...] = ()
    triggers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The triggers on the table of runs, and what is not so where one is missing or disabled."""
    functions: Mapping[str, str] = field(default_factory=dict[str, str])
    """The argument types of the functions that statements call."""
    fillfactor: int | None = None
    renewed: str | None = None
    """The column that renewals change, which no index may mention."""
    slow: str = "statements are slow"
    """What comes of a missing index."""

    def quoted(self, table: Table) -> str:
        """Give the table's quoted name, beside that table of runs."""
        return table.quoted if self.side is None else table.beside(self.side)

    def column_types(self, table: Table) -> dict[str, str]:
        """Give each column's type, with the names that the enum types have beside that table of runs."""
        names = {f"{column}_enum": f"{table.name}_{column}_enum" for column in ("type", "status")}
        return {name: kind.format(**names) for name, kind in self.columns.items()}

    def signatures(self, table: Table) -> list[str]:
        """Give the functions that statements call, quoted, with their argument types."""
        return [
            f"{quote(table.schema)}.{quote(f'{table.name}_{suffix}')}({arguments})"
            for suffix, arguments in self.functions.items()
        ]


RUNS = Shape(
    side=None,
    migration="0001_initial.sql",
    columns={
        "id": "uuid",
        "lockKey": "character varying(320)",
        "code": "character varying(64)",
        "name": "character varying(256)",
        "type": "{type_enum}",
        "status": "{status_enum}",
        "ownerToken": "uuid",
        "data": "jsonb",
        "createdAt": "timestamp with time zone",
        "modifiedAt": "timestamp with time zone",
        "fencingToken": "bigint",
        "attempt": "integer",
        "leaseMs": "bigint",
        "owner": "character varying(256)",
        "runKey": "character varying(1024)",
        "startedAt": "timestamp with time zone",
        "finishedAt": "timestamp with time zone",
        "scheduledAt": "timestamp with time zone",
        "outcome": "character varying(16)",
        "retryAt": "timestamp with time zone",
    },
    defaulted=("id", "createdAt", "modifiedAt", "attempt", "startedAt"),
    identity=("fencingToken",),
    unique=(("id",), ("lockKey",), ("ownerToken",), ("fencingToken",)),
    indexes=("code_idx", "unfinished_idx", "due_idx", "succeeded_idx", "exhausted_idx"),
    triggers={"reclaim_trigger": "takeovers by NestJS nodes are not fenced"},
    fillfactor=50,
    renewed="modifiedAt",
    slow="listings are slow",
)

ATTEMPTS = Shape(
    side="attempts",
    migration="0002_attempts.sql",
    columns={
        "runId": "uuid",
        "attempt": "integer",
        "fencingToken": "bigint",
        "owner": "character varying(256)",
        "status": "{status_enum}",
        "leaseMs": "bigint",
        "startedAt": "timestamp with time zone",
        "endedAt": "timestamp with time zone",
        "data": "jsonb",
        "outcome": "character varying(16)",
    },
    unique=(("runId", "attempt"),),
    foreign_keys=("attempts_fkey",),
    triggers={"attempts_trigger": "former attempts are not remembered"},
    functions={"previous": "oid, uuid, uuid"},
)

CHECKPOINTS = Shape(
    side="checkpoints",
    migration="0002_attempts.sql",
    columns={
        "runId": "uuid",
        "attempt": "integer",
        "data": "jsonb",
        "savedAt": "timestamp with time zone",
    },
    unique=(("runId",),),
    fillfactor=50,
    foreign_keys=("checkpoints_fkey",),
)

OUTBOX = Shape(
    side="outbox",
    migration="0003_outbox.sql",
    columns={
        "id": "bigint",
        "idempotencyKey": "character varying(512)",
        "type": "character varying(256)",
        "payload": "jsonb",
        "enqueueToken": "uuid",
        "attempt": "integer",
        "enqueuedAt": "timestamp with time zone",
        "dueAt": "timestamp with time zone",
        "claimToken": "uuid",
        "claimedUntil": "timestamp with time zone",
        "doneAt": "timestamp with time zone",
        "deadAt": "timestamp with time zone",
        "error": "text",
    },
    defaulted=("attempt", "enqueuedAt", "dueAt"),
    identity=("id",),
    unique=(("id",), ("idempotencyKey",)),
    indexes=("outbox_unsent_idx", "outbox_dead_idx", "outbox_done_idx"),
    fillfactor=50,
    slow="relays are slow",
)

JOBS = Shape(
    side="jobs",
    migration="0004_scheduling.sql",
    columns={
        "code": "character varying(64)",
        "schedule": "text",
        "timezone": "text",
        "fingerprint": "text",
        "policy": "jsonb",
        "knownSince": "timestamp with time zone",
        "watermark": "timestamp with time zone",
        "turn": "bigint",
        "pausedAt": "timestamp with time zone",
        "pausedBy": "character varying(256)",
        "pauseReason": "text",
        "registeredAt": "timestamp with time zone",
        "registeredBy": "character varying(256)",
    },
    defaulted=("knownSince", "watermark", "turn"),
    unique=(("code",),),
    functions={"decided": "character varying, character varying"},
    fillfactor=50,
)

NODES = Shape(
    side="nodes",
    migration="0004_scheduling.sql",
    columns={
        "node": "uuid",
        "label": "character varying(256)",
        "startedAt": "timestamp with time zone",
        "seenAt": "timestamp with time zone",
        "clockOffsetMs": "bigint",
        "jobs": "jsonb",
    },
    defaulted=("startedAt", "seenAt"),
    unique=(("node",),),
    fillfactor=50,
)

ACTIONS = Shape(
    side="actions",
    migration="0005_operating.sql",
    columns={
        "id": "bigint",
        "action": "character varying(16)",
        "code": "character varying(64)",
        "runId": "uuid",
        "attempt": "integer",
        "by": "character varying(256)",
        "reason": "text",
        "at": "timestamp with time zone",
        "actionToken": "uuid",
        "ownerToken": "uuid",
    },
    defaulted=("at",),
    identity=("id",),
    unique=(("id",), ("actionToken",)),
    indexes=("actions_run_idx", "actions_code_idx"),
    foreign_keys=("actions_fkey",),
    functions={"released": "uuid, uuid"},
    slow="removing old runs is slow",
)

SHAPES = (RUNS, ATTEMPTS, CHECKPOINTS, OUTBOX, JOBS, NODES, ACTIONS)
