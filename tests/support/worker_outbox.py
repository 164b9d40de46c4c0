"""A relay in a process of its own, which notes what it publishes in the database, and may stop there for ever."""

from __future__ import annotations

import threading
from datetime import timedelta

import psycopg

from tenure.outbox import Outbox, OutboxMessage

CLAIM = timedelta(seconds=1)
DELIVERIES = "CREATE TABLE deliveries (number bigint GENERATED ALWAYS AS IDENTITY, id bigint, type text, attempt int)"


def main(url: str, stops_after: int | None) -> None:
    """Relay until killed; the one that stops has published its last message and not said so."""
    published = 0
    with psycopg.connect(url, autocommit=True) as connection, Outbox(url) as box:

        def publish(message: OutboxMessage) -> None:
            nonlocal published
            connection.execute(
                "INSERT INTO deliveries (id, type, attempt) VALUES (%s, %s, %s)",
                [message.id, message.type, message.attempt],
            )
            published += 1
            if published == stops_after:
                threading.Event().wait()

        box.run(publish, claim=CLAIM, batch=20, poll=timedelta(milliseconds=50))
