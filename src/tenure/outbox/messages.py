"""Messages as values, and what may stand in one: checked before any SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tenure.data import encode_data
from tenure.errors import InvalidJobDataError, InvalidJobIdentityOptionsError, InvalidJobOptionsError
from tenure.identity import external_job_id, shown, storable_text
from tenure.records import instant
from tenure.trust import Backoff

KEY_LIMIT: Final = 512
TYPE_LIMIT: Final = 256
BATCH_LIMIT: Final = 1_000
LIST_LIMIT: Final = 10_000
ATTEMPTS_LIMIT: Final = 1_000_000
DURATION_LIMIT: Final = timedelta(days=36_500)

DEFAULT_CLAIM: Final = timedelta(seconds=60)
"""How long one message may take to publish before another relay may hand it on, too."""
DEFAULT_KEEP: Final = timedelta(days=7)
"""How long a key is remembered after its message was sent."""
DEFAULT_MAX_ATTEMPTS: Final = 20
"""About an hour, with the pauses in between that are the default."""
DEFAULT_RETRY_FIRST: Final = timedelta(seconds=1)
DEFAULT_RETRY_MOST: Final = timedelta(minutes=5)
DEFAULT_POLL: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """Be what a relay hands to `publish`. Its payload is in no `repr` (C11)."""

    id: int
    """Larger for each later enqueue; its order within a type."""
    idempotency_key: str
    type: str
    payload: dict[str, Any] = field(repr=False)
    attempt: int
    """1 if it was never handed over before; more says that it may have been published already."""
    enqueued_at: datetime

    @property
    def external_job_id(self) -> str:
        """The id under which a queue of another maker can know it: the same at every attempt (C2.7)."""
        return external_job_id(self.idempotency_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadOutboxMessage(OutboxMessage):
    """Be a message that was given up, and say why."""

    error: str = field(repr=False)
    """What the last attempt raised, as `TypeName: message`."""
    dead_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayRules:
    """Hold how a relay works; see `Outbox.relay`."""

    batch: int
    claim_s: float
    max_attempts: int
    retry: Backoff

    @classmethod
    def of(
        cls, batch: int, claim: timedelta, max_attempts: int, retry_first: timedelta, retry_most: timedelta
    ) -> RelayRules:
        """Check what was asked for."""
        check_count("batch", batch, BATCH_LIMIT)
        check_count("max_attempts", max_attempts, ATTEMPTS_LIMIT)
        first_s, most_s = seconds("retry_first", retry_first), seconds("retry_most", retry_most)
        if first_s > most_s:
            raise InvalidJobOptionsError("retry_first must not be longer than retry_most.")
        return cls(
            batch=batch,
            claim_s=seconds("claim", claim, at_least=timedelta(milliseconds=100)),
            max_attempts=max_attempts,
            retry=Backoff(first_s, most_s),
        )


def read_message(row: tuple[Any, ...]) -> OutboxMessage:
    """Read a row that a claim gave."""
    return OutboxMessage(**_fields(row))


def read_dead(row: tuple[Any, ...]) -> DeadOutboxMessage:
    """Read a row that was given up."""
    *common, dead_us, error = row
    return DeadOutboxMessage(**_fields(tuple(common)), dead_at=instant(dead_us), error=error or "")


def checked_key(idempotency_key: object) -> str:
    """Give the key as it is, or raise `InvalidJobIdentityOptionsError`."""
    return _checked_text("idempotency_key", idempotency_key, KEY_LIMIT)


def checked_type(type_: object) -> str:
    """Give the type as it is, or raise `InvalidJobIdentityOptionsError`."""
    return _checked_text("type", type_, TYPE_LIMIT)


def encode_payload(payload: Mapping[str, Any]) -> str:
    """Give the JSON text of a payload, or raise `InvalidJobDataError` saying what cannot be stored."""
    try:
        text = encode_data(payload)
    except InvalidJobDataError as error:
        raise InvalidJobDataError(str(error).replace("data", "payload", 1)) from None
    if text is None:
        raise InvalidJobDataError(
            "payload must be a JSON object (a dict with string keys), not None. Give {} for none."
        )
    return text


def check_count(name: str, value: object, limit: int) -> None:
    """Refuse what is no number from 1 to the limit."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise InvalidJobOptionsError(f"{name} must be an int from 1 to {limit:,}; {shown(value)} was given.")


def check_id(message_id: object) -> None:
    """Refuse what cannot be the id of a message."""
    check_count("message_id", message_id, 2**63 - 1)


def seconds(name: str, value: object, *, at_least: timedelta = timedelta(0)) -> float:
    """Give the seconds of a duration within its limits."""
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {type(value).__name__}.")
    if not at_least <= value <= DURATION_LIMIT:
        raise InvalidJobOptionsError(f"{name} must be from {at_least} to {DURATION_LIMIT}; {value} was given.")
    return value.total_seconds()


def _fields(row: tuple[Any, ...]) -> dict[str, Any]:
    message_id, key, type_, payload, attempt, enqueued_us = row
    return {
        "id": message_id,
        "idempotency_key": key,
        "type": type_,
        "payload": json.loads(payload),
        "attempt": attempt,
        "enqueued_at": instant(enqueued_us),
    }


def _checked_text(name: str, value: object, limit: int) -> str:
    text = storable_text(name, value)
    if not 1 <= len(text) <= limit:
        raise InvalidJobIdentityOptionsError(
            f"{name} must be 1 to {limit} characters; {shown(text)} has {len(text):,}. Shorten it, or use a hash of it."
        )
    return text
