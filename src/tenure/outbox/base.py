"""What the two outboxes share: their table and driver, a forked child, and what is checked and said. No I/O."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar
from uuid import UUID, uuid4
from weakref import WeakSet

from tenure.clock import boot_s, spread
from tenure.drivers import AsyncDriver, Driver
from tenure.errors import JobDatabaseError, JobServiceStateError
from tenure.operations import Attempt, Call
from tenure.outbox import calls
from tenure.outbox.batch import SENT, Batch, Fate, Outcome, claim, failed, overdue
from tenure.outbox.messages import (
    LIST_LIMIT,
    DeadOutboxMessage,
    OutboxMessage,
    RelayRules,
    check_count,
    check_id,
    checked_key,
    checked_type,
    encode_payload,
    seconds,
)
from tenure.outbox.pace import Pace
from tenure.statements import DEFAULT_SCHEMA, DEFAULT_TABLE, OutboxStatements, Table

D = TypeVar("D", Driver, AsyncDriver)
B = TypeVar("B")

REST_SLICE_S: Final = 0.1
"""How often a relay that rests looks whether it is to stop."""

logger = logging.getLogger("tenure")

_living: WeakSet[OutboxBase[Any, Any]] = WeakSet()
_abandoned: list[object] = []
"""What a forked child inherited and must neither use nor close: its sockets are the parent's."""


class OutboxBase(Generic[D, B]):
    """Hold the parts of an outbox, and remake its driver in a forked child."""

    def __init__(self, database: B | None = None, *, schema: str = DEFAULT_SCHEMA, table: str = DEFAULT_TABLE) -> None:
        self._database = database
        self._table = Table(schema, table)
        self._statements = OutboxStatements(self._table)
        self._closed = False
        self._forked = False
        self._driver: D = self._make_driver()
        _living.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._table.beside('outbox')}, {'closed' if self._closed else 'open'}>"

    def _make_driver(self) -> D:
        raise NotImplementedError

    def _start_afresh(self) -> None:
        """Leave the parent its connections; a pool that was given cannot be remade."""
        _abandoned.append(self._driver)
        self._forked = True
        if not self._driver.given:
            self._driver = self._make_driver()

    def _check_open(self) -> None:
        if self._closed:
            raise JobServiceStateError("This outbox is closed. Make a new one.")
        self._check_process()

    def _check_process(self) -> None:
        if self._forked and self._driver.given:
            raise JobServiceStateError(
                "This outbox was given its pool before os.fork(), and a pool does not survive a fork. Make the pool "
                "and the outbox in the child, or give the outbox a connection string."
            )

    def _enqueueing(self, idempotency_key: str, type_: str, payload: Any) -> Call:
        key, kind, text = checked_key(idempotency_key), checked_type(type_), encode_payload(payload)
        return calls.enqueueing(self._statements, key, kind, text, uuid4())

    def _claim(self, rules: RelayRules, token: UUID) -> Attempt[Batch]:
        return claim(self._statements, rules, token, now_boot_s=boot_s())

    def _giving_back(self, token: UUID) -> Attempt[int]:
        return calls.give_back(self._statements, token, now_boot_s=boot_s())

    def _listing(self, limit: int) -> Attempt[list[DeadOutboxMessage]]:
        check_count("limit", limit, LIST_LIMIT)
        self._check_open()
        return calls.dead(self._statements, limit, now_boot_s=boot_s())

    def _reviving(self, message_id: int) -> Attempt[bool]:
        check_id(message_id)
        self._check_open()
        return calls.revive(self._statements, message_id, now_boot_s=boot_s())

    def _discarding(self, message_id: int) -> Attempt[bool]:
        check_id(message_id)
        self._check_open()
        return calls.discard(self._statements, message_id, now_boot_s=boot_s())

    def _pruning(self, keep_s: float) -> Attempt[int]:
        return calls.prune(self._statements, keep_s, now_boot_s=boot_s())


def pace_of(poll: timedelta, keep: timedelta | None) -> Pace:
    """Check and hold how often a relay looks, and what it prunes."""
    poll_s = seconds("poll", poll, at_least=timedelta(milliseconds=10))
    return Pace(poll_s, None if keep is None else seconds("keep", keep))


def outcome_of(error: Exception | None, message: OutboxMessage, rules: RelayRules) -> Outcome:
    """Decide about a message that was handed over, and say in the log if it failed; never what it says (C11)."""
    if error is None:
        return SENT
    outcome = failed(message, error, rules, spread())
    what_next = "it is given up" if outcome.fate is Fate.DEAD else f"tried again in {outcome.pause_s:.3g} s"
    logger.warning(
        "Message %d of type %r could not be published (%s, attempt %d of %d); %s.",
        message.id,
        message.type,
        type(error).__name__,
        message.attempt,
        rules.max_attempts,
        what_next,
    )
    return outcome


def overdue_outcome(message: OutboxMessage, rules: RelayRules) -> Outcome | None:
    """Give a message up, unpublished, which no relay survived, and say so; `None` for any other."""
    outcome = overdue(message, rules)
    if outcome is not None:
        logger.warning(
            "Message %d of type %r was handed over %d times and never settled; it is given up.",
            message.id,
            message.type,
            message.attempt - 1,
        )
    return outcome


def note_lost(batch: Batch) -> None:
    """Say that another relay has taken the rows of a batch over."""
    logger.warning(
        "The claim on a batch of messages was lost: publishing took longer than %g s. Another relay goes on, and the "
        "last message may have been published twice. Publish faster, or give relays a longer claim.",
        batch.rules.claim_s,
    )


def pause_after(pace: Pace, error: JobDatabaseError) -> float:
    """Say how long a relay waits while the database is away, in the log, too; raise what waiting does not mend."""
    if not error.transient and not error.may_have_changed:
        raise error
    pause_s = pace.after_error(spread())
    if pace.says(boot_s()):
        logger.warning("The relay cannot go on; it tries again (%d failure(s) in a row): %s", pace.failures, error)
    return pause_s


def note_recovery(pace: Pace) -> None:
    """Say that the database is back."""
    if pace.failures:
        logger.info("The relay goes on after %d failure(s).", pace.failures)


def _start_living_afresh() -> None:
    for outbox in list(_living):
        outbox._start_afresh()  # pyright: ignore[reportPrivateUsage] - this module's own class


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_living_afresh)
