"""The statements of the scheduler, for one table of runs."""

from __future__ import annotations

from functools import cache
from typing import Final

from tenure.statements import Query, Table, compile_query, microseconds, named_blocks

SCHEDULING: Final = "scheduling.sql"

_UNFINISHED = '"status" <> \'SUCCESS\' AND "scheduledAt" IS NOT NULL AND "outcome" IS DISTINCT FROM \'exhausted\''
_TAKEABLE = (
    f'({_UNFINISHED} AND CASE "status" WHEN \'FAIL\' THEN COALESCE("retryAt" <= clock_timestamp(), true) '
    'ELSE (EXTRACT(EPOCH FROM clock_timestamp()) - EXTRACT(EPOCH FROM "modifiedAt")) * 1000 '
    '> COALESCE("leaseMs", CAST(:lease_ms AS bigint)) END)'
)
_TICK = (
    "^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{3}Z$"
)


class SchedulingStatements:
    """Hold the statements of `sql/scheduling.sql`, ready to be sent; `service.table` names the table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        for name in named_blocks(SCHEDULING):
            setattr(self, name, _compiled(table, name))

    register: Query
    beat: Query
    claim: Query
    decide: Query
    unfinished: Query
    retake: Query
    trigger_run: Query
    pause: Query
    resume: Query
    stand: Query
    forget_node: Query
    list_jobs: Query
    list_nodes: Query
    prune: Query


@cache
def _compiled(table: Table, name: str) -> Query:
    text = named_blocks(SCHEDULING)[name]
    # The fragments hold parameters of their own, so they go in before the parameters are numbered.
    for fragment, sql in {"unfinished": _UNFINISHED, "takeable": _TAKEABLE, "tick_pattern": _TICK}.items():
        text = text.replace(f"${{{fragment}}}", sql)
    return compile_query(name, text, {**table.identifiers(), **_instants()})


def _instants() -> dict[str, str]:
    """Give what reads an instant: of a column that needs no alias, and of one of `job` or `was`."""
    columns = {"watermark": "watermark", "seen": "seenAt", "scheduled": "scheduledAt", "retry": "retryAt"}
    of_job = {"watermark": "watermark", "registered": "registeredAt", "paused": "pausedAt", "known": "knownSince"}
    return {
        "clock_us": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint)",
        **{f"{name}_us": microseconds(column) for name, column in columns.items()},
        **{
            f"{alias}_{name}_us": microseconds(column, alias)
            for name, column in of_job.items()
            for alias in ("job", "was")
        },
    }
