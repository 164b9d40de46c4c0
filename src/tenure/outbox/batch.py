"""A claimed batch as a value: what comes next, what is sent for it, and when the relay must stop. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from tenure.data import describe_error
from tenure.operations import Attempt, Call, Row, Try
from tenure.outbox.calls import LIMIT_S
from tenure.outbox.messages import OutboxMessage, RelayRules, read_message
from tenure.statements import OutboxStatements


class Fate(StrEnum):
    """Say what became of a message that was handed over."""

    SENT = "sent"
    FAILED = "failed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what is recorded of one attempt at a message."""

    fate: Fate
    error: str | None = None
    pause_s: float = 0.0


SENT = Outcome(Fate.SENT)


def failed(message: OutboxMessage, error: Exception, rules: RelayRules, spread: float) -> Outcome:
    """Decide about a message whose publish raised: a pause before the next attempt, or the end of it."""
    text: str = describe_error(error)["error"]
    if message.attempt >= rules.max_attempts:
        return Outcome(Fate.DEAD, text)
    return Outcome(Fate.FAILED, text, rules.retry.delay_s(message.attempt, spread))


def overdue(message: OutboxMessage, rules: RelayRules) -> Outcome | None:
    """Give up, unpublished, a message that was handed over too often by relays that never said what became of it."""
    if message.attempt <= rules.max_attempts:
        return None
    return Outcome(
        Fate.DEAD,
        f"It was handed over {message.attempt - 1} times, and each time the relay ended, or took longer than its "
        "claim, before it said what had become of it.",
    )


class Batch:
    """Walk through claimed messages in their order, each counted as handed over when its turn comes."""

    def __init__(
        self,
        statements: OutboxStatements,
        rules: RelayRules,
        token: UUID,
        messages: Iterable[OutboxMessage],
        sent_boot_s: float,
    ) -> None:
        self.rules = rules
        self.sent = 0
        self.is_lost = False
        self._statements = statements
        self._token = token
        self._left = deque(messages)
        self.claimed = len(self._left)
        self._claimed_boot_s = self._started_boot_s = sent_boot_s

    def current(self, now_boot_s: float) -> OutboxMessage | None:
        """Give the message to hand over now; `None` at the end, and when the claim is lost, or must be over by now."""
        if self._left and now_boot_s >= self._started_boot_s + self.rules.claim_s:
            self.is_lost = True
        return self._left[0] if self._left and not self.is_lost else None

    def settle(self, outcome: Outcome, *, last: bool, now_boot_s: float) -> Attempt[None]:
        """Record what became of the current message, and go on to the next, in one statement.

        A failure blocks its type: what else was claimed of it is given back. `last` gives back all. It is tried for as
        long as a claim lasts; later, others have the message.
        """
        done, *rest = self._left
        blocked = done.type if outcome.fate is Fate.FAILED else None
        back = [message for message in rest if last or message.type == blocked]
        onward = [message for message in rest if not last and message.type != blocked]
        renews = now_boot_s - self._claimed_boot_s > self.rules.claim_s / 2
        call = Call.of(
            self._statements.advance,
            claim_token=self._token,
            claim_ms=round(self.rules.claim_s * 1000),
            id=done.id,
            outcome=outcome.fate.value,
            error=outcome.error,
            pause_ms=round(outcome.pause_s * 1000),
            next_id=onward[0].id if onward else None,
            kept_ids=_array(onward[1:] if renews else []),
            returned_ids=_array(back),
        )

        def conclude(rows: Sequence[Row], this: Try) -> None:
            words = {row[0] for row in rows}
            self._started_boot_s = this.sent_boot_s
            if renews:
                self._claimed_boot_s = this.sent_boot_s
            self.sent += "settled" in words and outcome.fate is Fate.SENT
            self.is_lost = "settled" not in words or (bool(onward) and "started" not in words)
            self._left = deque([] if self.is_lost else onward)
            if self._left:
                self._left[0] = replace(onward[0], attempt=onward[0].attempt + 1)

        return Attempt(call, conclude, until_boot_s=now_boot_s + self.rules.claim_s, insists=True)


def claim(statements: OutboxStatements, rules: RelayRules, token: UUID, *, now_boot_s: float) -> Attempt[Batch]:
    """Claim a batch; sent again with the same token, it claims the same rows again."""
    call = Call.of(statements.claim, claim_token=token, claim_ms=round(rules.claim_s * 1000), batch=rules.batch)

    def conclude(rows: Sequence[Row], this: Try) -> Batch:
        return Batch(statements, rules, token, map(read_message, rows), this.sent_boot_s)

    return Attempt(call, conclude, until_boot_s=now_boot_s + min(LIMIT_S, rules.claim_s / 2), insists=False)


def _array(messages: Sequence[OutboxMessage]) -> str:
    return "{" + ",".join(str(message.id) for message in messages) + "}"
