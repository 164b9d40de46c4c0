"""The pure parts of the outbox: what a batch sends, when a relay stops, and how long it rests (C7.4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tenure import JobDatabaseError
from tenure.errors import DatabaseProblem
from tenure.outbox.batch import SENT, Batch, Fate, Outcome, failed, overdue
from tenure.outbox.calls import PRUNE_CHUNK
from tenure.outbox.messages import OutboxMessage, RelayRules
from tenure.outbox.pace import PRUNE_EVERY_S, Pace
from tenure.statements import OutboxStatements, Table
from tenure.trust import Backoff

STATEMENTS = OutboxStatements(Table())
RULES = RelayRules(batch=100, claim_s=60.0, max_attempts=3, retry=Backoff(1.0, 300.0))
TOKEN = UUID(int=7)
FAILED = Outcome(Fate.FAILED, "ValueError", 2.0)


def message(number: int, kind: str = "mail", attempt: int = 0) -> OutboxMessage:
    return OutboxMessage(
        id=number,
        idempotency_key=f"k{number}",
        type=kind,
        payload={"secret": "hunter2"},
        attempt=attempt,
        enqueued_at=datetime(2026, 7, 20, tzinfo=UTC),
    )


def batch_of(*kinds: str, sent_boot_s: float = 0.0) -> Batch:
    messages = [message(number, kind, int(number == 0)) for number, kind in enumerate(kinds)]
    return Batch(STATEMENTS, RULES, TOKEN, messages, sent_boot_s)


def settle(batch: Batch, outcome: Outcome, *words: str, now: float = 1.0, last: bool = False) -> dict[str, Any]:
    """Settle the current message, answered with these words, and give the parameters that were sent."""
    attempt = batch.settle(outcome, last=last, now_boot_s=now)
    sent = dict(zip(attempt.call.query.parameters, attempt.call.parameters, strict=True))
    attempt.concluded([(word,) for word in words], now)
    return sent


def test_a_batch_goes_on_from_message_to_message() -> None:
    """Each statement records one message and starts the next, which counts as handed over."""
    batch = batch_of("a", "b")
    sent = settle(batch, SENT, "settled", "started")
    assert (sent["id"], sent["next_id"], sent["outcome"], sent["claim_token"]) == (0, 1, "sent", TOKEN)
    assert (sent["kept_ids"], sent["returned_ids"]) == ("{}", "{}")
    current = batch.current(1.0)
    assert current is not None
    assert (current.id, current.attempt) == (1, 1)
    assert settle(batch, SENT, "settled")["next_id"] is None
    assert (batch.current(1.0), batch.sent, batch.is_lost) == (None, 2, False)


def test_a_failure_gives_the_rest_of_its_type_back() -> None:
    """The other types go on."""
    batch = batch_of("a", "a", "b", "a", "b")
    sent = settle(batch, FAILED, "settled", "started")
    assert (sent["returned_ids"], sent["next_id"], sent["pause_ms"], sent["error"]) == ("{1,3}", 2, 2000, "ValueError")
    assert batch.sent == 0


def test_a_message_that_is_given_up_holds_up_nothing() -> None:
    """The next of its type is next."""
    batch = batch_of("a", "a")
    sent = settle(batch, Outcome(Fate.DEAD, "x"), "settled", "started")
    assert (sent["returned_ids"], sent["next_id"]) == ("{}", 1)


def test_the_last_one_gives_all_back() -> None:
    """A relay that is told to stop ends its batch in the statement that it sends anyway."""
    batch = batch_of("a", "b", "c")
    sent = settle(batch, SENT, "settled", last=True)
    assert (sent["returned_ids"], sent["next_id"]) == ("{1,2}", None)
    assert batch.current(1.0) is None
    assert not batch.is_lost


@pytest.mark.parametrize("words", [(), ("started",), ("settled",)])
def test_a_lost_claim_ends_the_batch(words: tuple[str, ...]) -> None:
    """Whether the message in hand, or the next one, is somebody else's."""
    batch = batch_of("a", "b", "c")
    settle(batch, SENT, *words)
    assert (batch.current(1.0), batch.is_lost) == (None, True)
    assert batch.sent == ("settled" in words)


def test_the_rest_is_kept_when_half_of_the_claim_is_over() -> None:
    """Counted from the last time it was; else nothing is written for it."""
    batch = batch_of("a", "b", "c", "d", "e")
    assert settle(batch, SENT, "settled", "started", now=29.0)["kept_ids"] == "{}"
    assert settle(batch, SENT, "settled", "started", now=31.0)["kept_ids"] == "{3,4}"
    assert settle(batch, SENT, "settled", "started", now=60.0)["kept_ids"] == "{}"


def test_nothing_is_handed_over_after_the_claims_own_end() -> None:
    """A process that was frozen in between stops by its own clock."""
    batch = batch_of("a", "b", sent_boot_s=100.0)
    assert batch.current(159.0) is not None
    assert batch.current(160.0) is None
    assert batch.is_lost


def test_a_record_is_tried_for_as_long_as_a_claim_lasts() -> None:
    """Afterwards others have the message."""
    attempt = batch_of("a").settle(SENT, last=False, now_boot_s=0.0)
    away = JobDatabaseError(DatabaseProblem.UNREACHABLE, "away", transient=True)
    assert attempt.pause_after(away, 50.0, 0.5) > 0
    with pytest.raises(JobDatabaseError):
        attempt.pause_after(away, 60.0, 0.5)


def test_failures_pause_longer_and_end() -> None:
    """Doubling with jitter, then dead; the error is kept, cleaned."""
    error = ValueError("no\0pe")
    first, second, third = (failed(message(1, attempt=n), error, RULES, 0.0) for n in (1, 2, 3))
    assert (first.fate, first.pause_s, second.pause_s) == (Fate.FAILED, 0.5, 1.0)
    assert (third.fate, third.error) == (Fate.DEAD, "ValueError: no pe")
    assert overdue(message(1, attempt=3), RULES) is None
    given_up = overdue(message(1, attempt=4), RULES)
    assert given_up is not None
    assert given_up.fate is Fate.DEAD


def test_a_relay_rests_longer_while_there_is_nothing_to_do() -> None:
    """Up to a poll; work wakes it up."""
    pace = Pace(poll_s=1.0, keep_s=None)
    rests = [pace.after_round(0, 0.999999) for _ in range(8)]
    assert rests == sorted(rests)
    assert rests[0] < 0.06
    assert rests[-1] == pytest.approx(1.0, abs=0.01)
    assert pace.after_round(1, 0.5) == 0.0
    assert pace.after_round(0, 0.5) < 0.06


def test_a_failure_is_said_once_a_minute() -> None:
    """However often it is met."""
    pace = Pace(poll_s=1.0, keep_s=None)
    assert [pace.says(now) for now in (5.0, 6.0, 64.0, 65.0, 66.0)] == [True, False, False, True, False]


def test_pruning_is_about_once_a_minute() -> None:
    """Sooner while there is more; never without a `keep`."""
    pace = Pace(poll_s=1.0, keep_s=10.0)
    assert pace.prunes(0.0)
    pace.pruned(3, 0.0, 0.5)
    assert not pace.prunes(PRUNE_EVERY_S - 1)
    assert pace.prunes(PRUNE_EVERY_S)
    pace.pruned(PRUNE_CHUNK, 100.0, 0.5)
    assert pace.prunes(101.0)
    assert not Pace(poll_s=1.0, keep_s=None).prunes(1e9)


def test_no_repr_shows_a_payload_or_a_token() -> None:
    """C11."""
    token = uuid4()
    call = Batch(STATEMENTS, RULES, token, [message(1)], 0.0).settle(SENT, last=True, now_boot_s=0.0).call
    assert "hunter2" not in repr(message(1))
    assert str(token) not in repr(call)


def test_rules_are_checked() -> None:
    """C11: with the name and the limit."""
    day = timedelta(days=1)
    with pytest.raises(ValueError, match="retry_first must not be longer"):
        RelayRules.of(1, day, 1, 2 * day, day)
