"""`enqueue_once(connection=)` over every kind of connection (C7.4, C7.5)."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import pytest

from tenure import JobServiceStateError
from tenure.outbox import AsyncOutbox, Outbox
from tenure.statements import Table
from tests.integrations.test_guests import KINDS, NAMED, Caller, Case, Opener, guests_url  # noqa: F401 - a fixture
from tests.support.rows import execute
from tests.support.servers import error_lines, log_offset

each_kind = pytest.mark.parametrize(("opener", "blocking"), KINDS)


class OutboxCase(Case):
    """A kind of connection, with the outbox that enqueues over it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = {"schema": self.table.schema, "table": self.table.name}
        self.message_key = f"{uuid4().hex} % :p1 $1"
        self.outbox: Any = (Outbox if self.blocking else AsyncOutbox)(self.url, **names)

    async def enqueue(self, caller: Caller, payload: Any = None) -> bool:
        done = self.outbox.enqueue_once(self.message_key, "mail", payload or {}, connection=caller.connection)
        return bool(done if self.blocking else await done)

    def found(self) -> list[str]:
        """Give the payloads of the rows with our key."""
        outbox = self.table.beside("outbox").replace("%", "%%")
        query = f'SELECT "payload"->>\'text\' FROM {outbox} WHERE "idempotencyKey" = %s'
        return [row[0] for row in execute(self.url, query, self.message_key)]


@pytest.mark.parametrize("table", NAMED.values(), ids=list(NAMED))
@each_kind
def test_a_message_commits_with_the_callers_rows(
    opener: Opener,
    blocking: bool,
    table: Table,
    guests_url: str,  # noqa: F811 - a fixture
) -> None:
    """C7.4, C9.2: new once, also within the transaction; under odd names, too; nothing is seen before the commit."""
    case = OutboxCase(opener, blocking, guests_url, table)
    text = 'ü % :p1 $1 \\ "'

    async def scenario() -> None:
        async with case.opened() as caller:
            await caller.begin()
            await case.insert(caller)
            assert await case.enqueue(caller, {"text": text}) is True
            assert await case.enqueue(caller, {"text": "another"}) is False
            assert (case.effects(), case.found()) == (0, [])
            await caller.commit()
            await caller.begin()
            assert await case.enqueue(caller) is False
            await caller.commit()
        assert (case.effects(), case.found()) == (1, [text])

    case.play(scenario)


@each_kind
def test_a_message_rolls_back_with_the_callers_rows(
    opener: Opener,
    blocking: bool,
    guests_url: str,  # noqa: F811 - a fixture
) -> None:
    """C7.4: nothing is left to send, and the key is new again."""
    case = OutboxCase(opener, blocking, guests_url, Table())

    async def scenario() -> None:
        async with case.opened() as caller:
            await caller.begin()
            await case.insert(caller)
            assert await case.enqueue(caller) is True
            await caller.rollback()
            assert (case.effects(), case.found()) == (0, [])
            await caller.begin()
            assert await case.enqueue(caller) is True
            await caller.rollback()

    case.play(scenario)


@each_kind
def test_outside_a_transaction_it_is_refused(
    opener: Opener,
    blocking: bool,
    guests_url: str,  # noqa: F811 - a fixture
) -> None:
    """C7.4: with nothing open nothing is done together."""
    case = OutboxCase(opener, blocking, guests_url, Table())

    async def scenario() -> None:
        async with case.opened(autocommit=True) as caller:
            with pytest.raises(JobServiceStateError, match="no transaction open"):
                await case.enqueue(caller)
        assert case.found() == []

    case.play(scenario)


@each_kind
def test_no_log_of_statements_shows_a_payload(
    opener: Opener,
    blocking: bool,
    guests_url: str,  # noqa: F811 - a fixture
    caplog: pytest.LogCaptureFixture,
    server: Any,
) -> None:
    """C11: SQLAlchemy's and Django's log values, if they are told to."""
    case = OutboxCase(opener, blocking, guests_url, Table())
    since = log_offset(server)

    async def scenario() -> None:
        with caplog.at_level(logging.DEBUG):
            async with case.opened() as caller:
                await caller.begin()
                await case.enqueue(caller, {"text": "hunter2"})
                await caller.commit()
        assert "hunter2" not in caplog.text
        assert case.found() == ["hunter2"]

    case.play(scenario)
    assert error_lines(server, since) == []
