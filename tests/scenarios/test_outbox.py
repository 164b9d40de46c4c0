"""The outbox: one row per key, handed on at least once, in order per type (C7.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tenure import (
    InvalidJobDataError,
    InvalidJobIdentityOptionsError,
    InvalidJobOptionsError,
    JobServiceStateError,
    external_job_id,
)
from tenure.embedded import EmbeddedPostgres
from tenure.outbox import AsyncOutbox, Outbox, OutboxMessage
from tests.support.boxes import OUTBOX, BlockingBox, Box, LoopBox, end_claims, make_due, rows
from tests.support.rows import execute
from tests.support.servers import error_lines, log_offset
from tests.support.waiting import eventually_async


@pytest.fixture(params=[BlockingBox, LoopBox], ids=["blocking", "async"])
async def box(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Box]:
    """Each outbox, on a fresh database."""
    made: Box = request.param(database_url)
    yield made
    await made.close()


class Published(list[OutboxMessage]):
    """Remember what was published, and fail for the keys that are told to."""

    def __init__(self, *failing: str) -> None:
        super().__init__()
        self.failing = set(failing)

    def __call__(self, message: OutboxMessage) -> None:
        self.append(message)
        if message.idempotency_key in self.failing:
            raise ConnectionError(f"no broker for {message.idempotency_key}\0")

    @property
    def keys(self) -> list[str]:
        return [message.idempotency_key for message in self]


class TestEnqueue:
    async def test_a_key_is_new_once(self, box: Box, database_url: str) -> None:
        """C7.4: one row per key, whatever type and payload come with it, and also after it was sent."""
        assert await box.enqueue("k", "mail", {"to": "ada"}) is True
        assert await box.enqueue("k", "mail", {"to": "ada"}) is False
        assert await box.enqueue("k", "other", {"to": "grace"}) is False
        published = Published()
        assert await box.relay(published) == 1
        assert await box.enqueue("k", "mail", {"to": "ada"}) is False
        assert rows(database_url) == [("k", 1, True, False)]
        assert (published[0].type, published[0].payload) == ("mail", {"to": "ada"})

    async def test_of_many_at_once_one_is_new(self, box: Box, server: EmbeddedPostgres, database_url: str) -> None:
        """C7.4: and no line in the server's log complains of a unique key."""
        since = log_offset(server)
        for key in map(str, range(20)):
            assert sorted(await asyncio.gather(*(box.enqueue(key) for _ in range(8)))) == [False] * 7 + [True]
        assert error_lines(server, since) == []

    @pytest.mark.parametrize("commits", [True, False])
    async def test_an_open_transaction_with_the_key_is_waited_for(
        self, box: Box, database_url: str, commits: bool
    ) -> None:
        """C7.4: after its commit the key is there; after its rollback it is new."""
        with psycopg.connect(database_url) as rival, Outbox(database_url) as theirs:
            assert theirs.enqueue_once("k", "mail", {}, connection=rival) is True
            ours = asyncio.create_task(box.enqueue("k"))
            await eventually_async(lambda: waits_for_a_lock(database_url))
            assert not ours.done()
            rival.commit() if commits else rival.rollback()
            assert await ours is not commits

    async def test_what_cannot_be_stored_is_refused_before_any_sql(self, database_url: str) -> None:
        """C7.4, C11: clear errors; the outbox does not even have a server."""
        bad: Any
        box = BlockingBox("host=127.0.0.1 port=1")
        for bad in ("", "k" * 513, "k\0", "k\ud800", None, 7):
            with pytest.raises(InvalidJobIdentityOptionsError, match="idempotency_key"):
                await box.enqueue(bad)
        for bad in ("", "t" * 257, "\0", 7):
            with pytest.raises(InvalidJobIdentityOptionsError, match="type"):
                await box.enqueue("k", bad)
        for bad in ([1], "text", {"x": float("nan")}, {"x": "\0"}, {1: 2}, {"x": "y" * 2_000_000}):
            with pytest.raises(InvalidJobDataError, match=r"^payload "):
                await box.enqueue("k", "mail", bad)
        with pytest.raises(InvalidJobDataError, match=r"^payload must be a JSON object"):
            box.box.enqueue_once("k", "mail", None)  # type: ignore[arg-type] # what a program may do all the same

    async def test_the_longest_key_and_type_are_stored(self, box: Box) -> None:
        """C7.4: in the widest characters that there are."""
        key, kind = "🂡" * 512, "🂮" * 256
        assert await box.enqueue(key, kind, {"ü": ["\\u0000", 1.5, None]}) is True
        published = Published()
        await box.relay(published)
        assert (published[0].idempotency_key, published[0].type) == (key, kind)
        assert published[0].payload == {"ü": ["\\u0000", 1.5, None]}

    async def test_a_transaction_of_the_other_kind_is_refused(self, database_url: str) -> None:
        """C7.5: a blocking outbox cannot await."""
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            with Outbox(database_url) as box, pytest.raises(TypeError, match="AsyncOutbox"):
                box.enqueue_once("k", "mail", {}, connection=connection)


class TestRelay:
    async def test_messages_go_in_order_of_their_type(self, box: Box, database_url: str) -> None:
        """C7.4: with all that `publish` needs to know."""
        for number in range(6):
            await box.enqueue(f"k{number}", f"t{number % 2}", {"number": number})
        published = Published()
        assert await box.relay(published, batch=4) == 4
        assert await box.relay(published, batch=4) == 2
        assert await box.relay(published) == 0
        assert published.keys == [f"k{number}" for number in range(6)]
        assert {message.attempt for message in published} == {1}
        assert [message.payload["number"] for message in published] == list(range(6))
        assert all(message.external_job_id == external_job_id(message.idempotency_key) for message in published)
        assert [message.id for message in published] == sorted(message.id for message in published)
        assert all(message.enqueued_at.utcoffset() == timedelta(0) for message in published)

    async def test_no_transaction_is_open_while_it_publishes(self, box: Box, database_url: str) -> None:
        """C7.4: looked at from within `publish`."""
        await box.enqueue("k")
        seen: list[Any] = []

        def publish(message: OutboxMessage) -> None:
            seen.extend(
                execute(
                    database_url,
                    "SELECT count(*), count(xact_start) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()",
                )
            )

        await box.relay(publish)
        assert seen == [(1, 0)]

    async def test_a_failure_holds_up_its_type_alone(self, box: Box, database_url: str) -> None:
        """C7.4: others go on; after the pause it is tried again, and its type goes on in order."""
        for number in range(6):
            await box.enqueue(f"k{number}", f"t{number % 2}")
        published = Published("k2")
        assert await box.relay(published) == 4
        assert published.keys == ["k0", "k1", "k2", "k3", "k5"]
        assert await box.relay(published) == 0
        make_due(database_url)
        published.failing.clear()
        assert await box.relay(published) == 2
        assert published.keys[5:] == ["k2", "k4"]
        assert [message.attempt for message in published[5:]] == [2, 1]

    async def test_pauses_grow_and_are_spread(self, box: Box, database_url: str) -> None:
        """C7.4: doubling, at most `retry_most`, by the database's clock."""
        await box.enqueue("k")
        published = Published("k")
        timing: dict[str, Any] = {"retry_first": timedelta(minutes=1), "retry_most": timedelta(minutes=6)}
        for most_s in (60, 120, 240, 360, 360):
            assert await box.relay(published, **timing) == 0
            ((left_s,),) = execute(
                database_url, f'SELECT EXTRACT(EPOCH FROM "dueAt" - clock_timestamp())::float8 FROM {OUTBOX}'
            )
            assert most_s / 2 - 5 < left_s <= most_s
            make_due(database_url)

    async def test_a_message_is_given_up_in_the_end(
        self, box: Box, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """C7.4, C11: with its error kept and cleaned; its type goes on; logs say neither error text nor payload."""
        for key in ("bad", "good"):
            await box.enqueue(key, "mail", {"secret": "hunter2"})
        published = Published("bad")
        with caplog.at_level(logging.DEBUG, "tenure"):
            for _ in range(3):
                await box.relay(published, max_attempts=3)
                make_due(database_url)
        assert published.keys == ["bad"] * 3 + ["good"]
        (dead,) = await box.dead()
        assert (dead.idempotency_key, dead.attempt, dead.payload) == ("bad", 3, {"secret": "hunter2"})
        assert dead.error == "ConnectionError: no broker for bad "
        assert dead.dead_at >= dead.enqueued_at
        assert "hunter2" not in repr(dead) + repr(published) + caplog.text
        assert "no broker" not in caplog.text + repr(dead)
        assert caplog.text.count("could not be published (ConnectionError") == 3
        assert await box.enqueue("bad") is False

    async def test_a_long_error_is_cut(self, box: Box) -> None:
        """C7.4, C6.3: at 8 KiB, and it is text that PostgreSQL can hold."""
        await box.enqueue("k")

        def publish(message: OutboxMessage) -> None:
            raise ValueError("\ud800ü\0" * 20_000)

        await box.relay(publish, max_attempts=1)
        (dead,) = await box.dead()
        assert 8_000 < len(dead.error.encode()) <= 8_192

    async def test_the_dead_are_tried_again_or_discarded(self, box: Box, database_url: str) -> None:
        """C7.4: by hand; once; and a discarded key stays known until it is pruned."""
        for key in ("a", "b", "c"):
            await box.enqueue(key)
        published = Published("a", "b")
        for _ in range(3):
            await box.relay(published, max_attempts=1)
        first, second = await box.dead()
        published.failing.clear()
        assert await box.call("retry", first.id) is True
        assert await box.call("retry", first.id) is False
        assert await box.call("discard", second.id) is True
        assert await box.call("discard", second.id) is False
        assert await box.call("retry", second.id) is False
        assert await box.relay(published, max_attempts=1) == 1
        assert published.keys == ["a", "b", "c", "a"]
        assert published[-1].attempt == 1
        assert await box.dead() == []
        assert await box.enqueue("b") is False
        with pytest.raises(InvalidJobOptionsError, match="message_id"):
            await box.call("retry", "7")

    async def test_what_was_sent_is_pruned(self, box: Box, database_url: str) -> None:
        """C7.4: only what was sent or discarded long enough ago; its key is new again."""
        for key in ("old", "young", "dead", "unsent"):
            await box.enqueue(key, key)
        await box.relay(Published("dead"), max_attempts=1)
        execute(
            database_url,
            f'UPDATE {OUTBOX} SET "doneAt" = NULL, "dueAt" = \'infinity\' WHERE "idempotencyKey" = \'unsent\'',
        )
        execute(database_url, f'UPDATE {OUTBOX} SET "doneAt" = "doneAt" - INTERVAL \'8 days\' WHERE "type" = \'old\'')
        assert await box.call("prune") == 1
        assert [row[0] for row in rows(database_url)] == ["young", "dead", "unsent"]
        assert await box.enqueue("old") is True
        assert await box.enqueue("young") is False
        assert await box.call("prune", timedelta(0)) == 1
        execute(
            database_url,
            f'INSERT INTO {OUTBOX} ("idempotencyKey", type, payload, "enqueueToken", "doneAt") '
            "SELECT 'n' || n, 't', '{}', gen_random_uuid(), 'epoch' FROM generate_series(1, 2500) n",
        )
        assert await box.call("prune") == 2500

    async def test_a_claim_that_was_lost_settles_nothing(self, box: Box, database_url: str) -> None:
        """C7.4: the rival that took the rows over settles them; the late relay stops, and says so."""
        for number in range(3):
            await box.enqueue(f"k{number}", f"t{number}")
        theirs = Published()

        def publish(message: OutboxMessage) -> None:
            end_claims(database_url)
            with Outbox(database_url) as rival:
                assert rival.relay(theirs) == 3

        assert await box.relay(publish) == 0
        assert theirs.keys == ["k0", "k1", "k2"]
        assert [message.attempt for message in theirs] == [2, 1, 1]
        assert rows(database_url) == [("k0", 2, True, False), ("k1", 1, True, False), ("k2", 1, True, False)]

    async def test_a_claim_is_extended_as_the_batch_advances(self, box: Box, database_url: str) -> None:
        """C7.4: a batch may take much longer than a claim, if each message does not; no rival comes in between."""
        for number in range(6):
            await box.enqueue(f"k{number}", f"t{number % 2}")
        published, theirs = Published(), Published()

        def publish(message: OutboxMessage) -> None:
            published(message)
            execute(database_url, "SELECT pg_sleep(0.8)")
            with Outbox(database_url) as rival:
                rival.relay(theirs)

        assert await box.relay(publish, claim=timedelta(seconds=3)) == 6
        assert published.keys == [f"k{number}" for number in range(6)]
        assert theirs == []

    async def test_a_message_that_no_relay_survives_is_given_up(self, box: Box, database_url: str) -> None:
        """C7.4: it is counted before it is handed over, so that one that kills its relay does not do so for ever."""
        await box.enqueue("poison")
        execute(database_url, f'UPDATE {OUTBOX} SET "attempt" = 20')
        published = Published()
        assert await box.relay(published) == 0
        assert published == []
        (dead,) = await box.dead()
        assert dead.error.startswith("It was handed over 20 times")

    async def test_an_interruption_gives_the_batch_back(self, box: Box, database_url: str) -> None:
        """C7.4: what is no Exception comes out; another relay can go on at once."""
        for number in range(3):
            await box.enqueue(f"k{number}")

        def publish(message: OutboxMessage) -> None:
            if message.idempotency_key == "k1":
                raise GreenletExit

        with pytest.raises(GreenletExit):
            await box.relay(publish)
        published = Published()
        assert await box.relay(published) == 2
        assert [(message.idempotency_key, message.attempt) for message in published] == [("k1", 2), ("k2", 1)]

    async def test_a_late_commit_goes_first_and_alone(self, box: Box, database_url: str) -> None:
        """C7.4: a row with a smaller id that commits later; order is promised to who enqueued after it only."""
        with psycopg.connect(database_url) as slow, Outbox(database_url) as theirs:
            theirs.enqueue_once("early", "mail", {}, connection=slow)
            await box.enqueue("late")
            published = Published()
            assert await box.relay(published) == 1
            await box.enqueue("later")
            slow.commit()
            await box.enqueue("last")
            assert await box.relay(published) == 3
        assert published.keys == ["late", "early", "later", "last"]


class GreenletExit(BaseException):
    """Be what some frameworks interrupt with."""


class TestRefusals:
    def test_publishing_of_the_other_kind_is_refused(self, database_url: str) -> None:
        """C7.4: a coroutine that nobody awaits would count as sent."""

        async def coroutine(message: OutboxMessage) -> None:
            raise AssertionError

        with Outbox(database_url) as box:
            box.enqueue_once("k", "mail", {})
            with pytest.raises(TypeError, match="AsyncOutbox"):
                box.relay(coroutine)
            with pytest.raises(TypeError, match="AsyncOutbox"):
                box.relay(lambda message: coroutine(message))  # noqa: PLW0108 - hides that it is a coroutine function
            published = Published()
            assert box.relay(published) == 1
            assert published[0].attempt == 2

    async def test_a_plain_function_under_a_loop_is_refused(self, database_url: str) -> None:
        """C7.4: it would block the loop."""
        publish: Any = Published()
        async with AsyncOutbox(database_url) as box:
            with pytest.raises(TypeError, match="Outbox"):
                await box.relay(publish)

    def test_options_out_of_range_are_refused(self, database_url: str) -> None:
        """C11: the name and the limit."""
        bad: dict[str, Any]
        with Outbox(database_url) as box:
            for bad in (
                {"batch": 0},
                {"batch": 1001},
                {"batch": True},
                {"max_attempts": 0},
                {"claim": timedelta(milliseconds=99)},
                {"retry_first": timedelta(seconds=-1)},
                {"retry_first": timedelta(hours=1)},
            ):
                with pytest.raises(InvalidJobOptionsError, match=next(iter(bad))):
                    box.relay(print, **bad)
            with pytest.raises(TypeError, match="claim must be a timedelta"):
                box.relay(print, claim=60)  # type: ignore[arg-type] # what a program may do all the same
            with pytest.raises(InvalidJobOptionsError, match="limit"):
                box.dead(0)

    async def test_a_closed_outbox_is_refused(self, database_url: str) -> None:
        """C11: with what to do."""
        box = Outbox(database_url)
        box.close()
        with pytest.raises(JobServiceStateError, match="closed"):
            box.enqueue_once("k", "mail", {})
        with pytest.raises(JobServiceStateError, match="closed"):
            box.relay(print)
        assert "closed" in repr(box)


def waits_for_a_lock(url: str) -> bool:
    return bool(
        execute(
            url,
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
    )
