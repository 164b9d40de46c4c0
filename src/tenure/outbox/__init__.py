"""The outbox: messages that commit with the caller's rows, and are handed on at least once (C7.4)."""

from tenure.outbox.boxes import AsyncOutbox, Outbox
from tenure.outbox.messages import (
    DEFAULT_CLAIM,
    DEFAULT_KEEP,
    DEFAULT_MAX_ATTEMPTS,
    DeadOutboxMessage,
    OutboxMessage,
)

__all__ = [
    "DEFAULT_CLAIM",
    "DEFAULT_KEEP",
    "DEFAULT_MAX_ATTEMPTS",
    "AsyncOutbox",
    "DeadOutboxMessage",
    "Outbox",
    "OutboxMessage",
]
