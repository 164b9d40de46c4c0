"""What the outbox sends, and how the answers are read: values, as in `operations`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from tenure.errors import DatabaseProblem, JobDatabaseError
from tenure.operations import Attempt, Call, Row, Try
from tenure.outbox.messages import DeadOutboxMessage, read_dead
from tenure.statements import OutboxStatements, Query

R = TypeVar("R")

LIMIT_S = 10.0
GIVE_BACK_LIMIT_S = 2.0
PRUNE_CHUNK = 1_000


def enqueueing(statements: OutboxStatements, key: str, type_: str, payload: str, token: UUID) -> Call:
    """Insert one row for a key."""
    return Call.of(statements.enqueue, idempotency_key=key, type=type_, payload=payload, enqueue_token=token)


def was_new(rows: Sequence[Row]) -> bool:
    """Say whether the row that is there is the one that was sent; no answer says that a rival's was committed."""
    return bool(rows) and rows[0][0] == "new"


def enqueue(call: Call, *, now_boot_s: float) -> Attempt[bool]:
    """Insert one row for a key, whatever becomes of the answer: a row with our token is new."""

    def conclude(rows: Sequence[Row], this: Try) -> bool:
        if not rows and this.uncertain:
            raise JobDatabaseError(
                DatabaseProblem.BUSY, "The row was inserted while the statement ran. Try again.", transient=True
            )
        return was_new(rows)

    return Attempt(call, conclude, until_boot_s=now_boot_s + LIMIT_S, insists=False)


def give_back(statements: OutboxStatements, token: UUID, *, now_boot_s: float) -> Attempt[int]:
    """Let go of what a token has claimed."""
    call = Call.of(statements.give_back, claim_token=token)
    return Attempt(call, lambda rows, _: len(rows), until_boot_s=now_boot_s + GIVE_BACK_LIMIT_S, insists=True)


def dead(statements: OutboxStatements, limit: int, *, now_boot_s: float) -> Attempt[list[DeadOutboxMessage]]:
    """List what was given up."""
    return _simple(statements.dead, lambda rows: [read_dead(row) for row in rows], now_boot_s, limit=limit)


def revive(statements: OutboxStatements, message_id: int, *, now_boot_s: float) -> Attempt[bool]:
    """Hand a message that was given up to the relays again."""
    return _simple(statements.revive, bool, now_boot_s, id=message_id)


def discard(statements: OutboxStatements, message_id: int, *, now_boot_s: float) -> Attempt[bool]:
    """Give a message up for good."""
    return _simple(statements.discard, bool, now_boot_s, id=message_id)


def prune(statements: OutboxStatements, keep_s: float, *, now_boot_s: float) -> Attempt[int]:
    """Delete some of what has been done with for long enough."""
    return _simple(statements.prune, len, now_boot_s, keep_ms=round(keep_s * 1000), limit=PRUNE_CHUNK)


def _simple(query: Query, read: Callable[[Sequence[Row]], R], now_boot_s: float, **values: Any) -> Attempt[R]:
    return Attempt(
        Call.of(query, **values),
        lambda rows, _: read(rows),
        until_boot_s=now_boot_s + LIMIT_S,
        insists=False,
    )
