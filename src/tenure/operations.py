"""Each operation as a value: the statement it sends, how its rows are read, and what to do when it fails.

No I/O, no clock, no logging here. A service asks an `Attempt` what to send and for how long to wait, sends it, and
hands back rows or the error; the attempt answers with a result, a pause before the next try, or the error itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

from tenure.attempts import JobAttempt
from tenure.endings import Ending
from tenure.errors import DatabaseProblem, JobDatabaseError, LostJobLeaseError
from tenure.lease import Hold, JobAcquired, JobAcquireResult, JobLease, JobNotAcquired, LostReason, NotAcquiredReason
from tenure.options import JobAcquireOptions, JobSchedulerStatus
from tenure.records import RunFilter, RunRecord, instant, instant_or_none, read_attempt, read_previous, read_run
from tenure.statements import Query, Statements
from tenure.trust import Backoff, TrustWindow

R = TypeVar("R")
Row = tuple[Any, ...]

CALL_LIMIT_S = 5.0
"""How long one try of a statement may take before its connection is given up."""
ACQUIRE_LIMIT_S = 10.0
"""How long it is tried to learn whether an acquire whose answer was lost had won."""
COMPLETE_LIMIT_S = 10.0
"""How long SUCCESS is tried for a lease whose deadline is not known here (C6.4)."""
LATE_LIMIT_S = 2.0
"""How long SUCCESS is tried at least, when the callback returned after the local deadline or close to it (C6.5)."""
FAIL_LIMIT_S = 5.0
"""How long FAIL is tried (C6.3)."""
GUEST_LOOKS = 3
"""How often a locked row is looked at again before its transaction counts as open."""


@dataclass(frozen=True, slots=True)
class Call:
    """Hold what a driver sends: a statement and its parameters, in the order of their numbers."""

    query: Query
    parameters: tuple[Any, ...] = field(repr=False)

    @classmethod
    def of(cls, query: Query, **values: Any) -> Call:
        """Put named values in the statement's order."""
        return cls(query, tuple(values[name] for name in query.parameters))


@dataclass(frozen=True, slots=True)
class Try:
    """Say when the answered try was sent, and whether an earlier one may have been committed."""

    sent_boot_s: float
    uncertain: bool


class LookAgainError(JobDatabaseError):
    """Say that an answer settles nothing: the same statement is sent again, whatever the attempt insists on."""

    def __init__(self) -> None:
        message = "The row was changed while the statement ran. Try again."
        super().__init__(DatabaseProblem.BUSY, message, transient=True)


class Attempt(Generic[R]):
    """Decide, try by try, how an operation is brought to its end.

    `insists` says whether an error that left the database unchanged is worth another try; an error after which the
    database may have changed always is, since only the same statement can tell what happened.
    """

    def __init__(
        self,
        call: Call,
        conclude: Callable[[Sequence[Row], Try], R],
        *,
        until_boot_s: float,
        insists: bool,
        backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
    ) -> None:
        self.call = call
        self.failures = 0
        self.uncertain = False
        self._conclude = conclude
        self._until_boot_s = until_boot_s
        self._insists = insists
        self._backoff = backoff

    def limit_s(self, now_boot_s: float) -> float:
        """Say how long the next try may take: half of what is left, so that a fresh connection gets the other half."""
        return min(CALL_LIMIT_S, max((self._until_boot_s - now_boot_s) / 2, 1.0))

    def concluded(self, rows: Sequence[Row], sent_boot_s: float) -> R:
        """Read the answer to the try that was sent at that instant.

        Raises `LookAgainError` for an answer that settles nothing: the row changed while the statement
        ran, so the same statement must look at it again.
        """
        return self._conclude(rows, Try(sent_boot_s, self.uncertain))

    def pause_after(self, error: JobDatabaseError, now_boot_s: float, spread: float) -> float:
        """Say how long to wait before the next try, or raise the error when there is none."""
        self.failures += 1
        self.uncertain = self.uncertain or error.may_have_changed
        pause_s = self._backoff.delay_s(self.failures, spread)
        worth_it = error.transient and (self._insists or self.uncertain or isinstance(error, LookAgainError))
        if not worth_it or now_boot_s + pause_s >= self._until_boot_s:
            error.may_have_changed = self.uncertain
            raise error
        return pause_s


def acquisition(
    statements: Statements,
    options: JobAcquireOptions,
    owner_token: UUID,
    owner: str,
    *,
    scheduled_at: datetime | None = None,
    now_boot_s: float,
    clock: Callable[[], float],
) -> Attempt[JobAcquireResult]:
    """Try to win a run (C4); `scheduled_at` is the tick that it stands for, if that is known.

    The window of a win opens when the try that won was sent; if an earlier try had won already, at `now_boot_s`, before
    the first: the row may bear any later instant.
    """
    call = Call.of(
        statements.acquire,
        lock_key=options.lock_key,
        code=options.code,
        name=options.name,
        type=options.type.value,
        owner_token=owner_token,
        lease_ms=options.lease_ms,
        owner=owner,
        run_key=options.run_key,
        scheduled_at=scheduled_at,
    )

    def conclude(rows: Sequence[Row], this: Try) -> JobAcquireResult:
        if rows and rows[0][0] == "removed":
            return JobNotAcquired(reason=NotAcquiredReason.REMOVED)
        if not rows or rows[0][0] == "lost":
            loss = read_loss(rows[0] if rows else None)
            if this.uncertain and loss.reason is NotAcquiredReason.CONTENDED:
                raise LookAgainError()  # what contends may be our own first try
            return loss
        sent_boot_s = now_boot_s if rows[0][0] == "mine" else this.sent_boot_s
        return read_win(rows[0], options, owner_token, sent_boot_s=sent_boot_s, clock=clock)

    return Attempt(call, conclude, until_boot_s=now_boot_s + ACQUIRE_LIMIT_S, insists=False)


class Winning(Protocol):
    """An answer that says, beside other things, whether a run was won."""

    @property
    def won(self) -> JobAcquired | None: ...


Answer: TypeAlias = JobAcquired | JobNotAcquired | Winning


def win_in(answer: Answer) -> JobAcquired | None:
    """Give the lease that an answer brings, if any."""
    if isinstance(answer, JobAcquired):
        return answer
    return None if isinstance(answer, JobNotAcquired) else answer.won


def read_win(
    row: Row, options: JobAcquireOptions, owner_token: UUID, *, sent_boot_s: float, clock: Callable[[], float]
) -> JobAcquired:
    """Read a lease from a row: verdict, id, fencing token, attempt, and last the attempt before."""
    _, run_id, fencing_token, attempt, *_, previous = row
    hold = Hold(TrustWindow(options.lease_ms / 1000, sent_boot_s), options.heartbeat_ms / 1000, clock)
    known = (UUID(run_id), owner_token, options.lock_key, fencing_token, attempt)
    return JobAcquired(*known, previous=read_previous(previous)).held(hold)


def renewal_by_hand(statements: Statements, lease: JobLease, *, now_boot_s: float) -> Attempt[LostReason | None]:
    """Renew one lease (C5.1); the result is why it cannot be, or `None`."""
    call = Call.of(statements.heartbeat, id=lease.id, owner_token=lease.owner_token)
    return Attempt(call, lambda rows, _: _why_refused(rows), until_boot_s=now_boot_s + CALL_LIMIT_S, insists=True)


def saving(statements: Statements, lease: JobLease, data: str, *, now_boot_s: float) -> Attempt[LostReason | None]:
    """Save a checkpoint (C7.6); the result is why it cannot be, or `None`. To send it twice changes nothing."""
    call = guest_saving(statements, lease, data)
    return Attempt(call, lambda rows, _: _why_refused(rows), until_boot_s=now_boot_s + CALL_LIMIT_S, insists=True)


def guest_saving(statements: Statements, lease: JobLease, data: str) -> Call:
    """Save a checkpoint in a caller's transaction (C7.6)."""
    return Call.of(statements.checkpoint, id=lease.id, owner_token=lease.owner_token, data=data)


@dataclass(frozen=True, slots=True)
class Settled:
    """Say what became of recording an outcome.

    `refused` is why it was not recorded, or `None` when it is. `already` says that the row bore this very outcome
    under our token before: recorded by whoever else was given the lease.
    """

    status: JobSchedulerStatus
    refused: LostReason | None
    already: bool = False

    def raise_if_refused(self) -> None:
        """Raise `LostJobLeaseError` when the row was not ours any more, nor says what we wanted (C6.5)."""
        if self.refused is not None and not self.already:
            raise LostJobLeaseError(self.refused)


def settlement(
    statements: Statements,
    lease: JobLease,
    status: JobSchedulerStatus,
    data: str | None,
    *,
    until_boot_s: float,
    ending: Ending = Ending(),  # noqa: B008 - a frozen value
) -> Attempt[Settled]:
    """Record how a run ended, once (C6.1); a commit whose answer was lost is recognised as done (C6.4)."""
    call = _settling(statements, lease, status, data, ending)

    def conclude(rows: Sequence[Row], this: Try) -> Settled:
        already = bool(rows) and rows[0][0] == status.value
        return Settled(status, None if already and this.uncertain else _why_refused(rows), already)

    return Attempt(call, conclude, until_boot_s=until_boot_s, insists=True)


def guarding(statements: Statements, lease: JobLease) -> Call:
    """Guard a run in a caller's transaction (C7.3)."""
    return Call.of(statements.guard, id=lease.id, owner_token=lease.owner_token)


def guest_settlement(statements: Statements, lease: JobLease, status: JobSchedulerStatus, data: str | None) -> Call:
    """Record how a run ended in a caller's transaction (C7.2)."""
    return _settling(statements, lease, status, data, Ending())


def _settling(
    statements: Statements, lease: JobLease, status: JobSchedulerStatus, data: str | None, ending: Ending
) -> Call:
    return Call.of(
        statements.settle,
        id=lease.id,
        owner_token=lease.owner_token,
        status=status.value,
        data=data,
        outcome=ending.outcome,
        retry_ms=ending.retry_ms,
    )


def why_refused(rows: Sequence[Row]) -> LostReason | None:
    """Read the answer to a statement that went along in a caller's transaction.

    A row that was RUNNING under our token when the statement began, and could not be had, was being taken.
    """
    verdict = rows[0][0] if rows else "gone"
    if verdict == JobSchedulerStatus.RUNNING:
        return LostReason.TAKEN_OVER
    return None if verdict == "done" else lost_reason(verdict)


class GuestEnd(StrEnum):
    """Say what became of a run that was settled in a caller's transaction."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    OPEN = "open"
    LOST = "lost"


def look_after_guest(statements: Statements, lease: JobLease, *, now_boot_s: float) -> Attempt[GuestEnd]:
    """Learn how the caller's transaction ended (C7.2).

    A row that is locked is looked at again for a moment: it may be a renewal of our own that was under way.
    """
    call = Call.of(statements.look_after_guest, id=lease.id, owner_token=lease.owner_token)
    looks = iter(range(GUEST_LOOKS))

    def conclude(rows: Sequence[Row], _this: Try) -> GuestEnd:
        verdict = rows[0][0] if rows else "gone"
        if verdict == "locked" and next(looks, None) is not None:
            raise LookAgainError()
        ends = {"RUNNING": GuestEnd.ROLLED_BACK, "locked": GuestEnd.OPEN, "taken": GuestEnd.LOST, "gone": GuestEnd.LOST}
        return ends.get(verdict, GuestEnd.COMMITTED)

    return Attempt(call, conclude, until_boot_s=now_boot_s + COMPLETE_LIMIT_S, insists=True, backoff=Backoff(0.02, 0.1))


def look(statements: Statements, waited_for: Sequence[JobAcquireOptions]) -> Call:
    """See how runs stand; a lease of unknown length is judged by the waiter's own, the shortest if several wait."""
    lengths: dict[str, int] = {}
    for options in waited_for:
        lengths[options.lock_key] = min(options.lease_ms, lengths.get(options.lock_key, options.lease_ms))
    return Call.of(statements.look, lock_keys=list(lengths), lease_lengths_ms=list(lengths.values()))


def disownment(statements: Statements, owner_token: UUID, data: str) -> Call:
    """Free whatever that token holds."""
    return Call.of(statements.disown, owner_token=owner_token, data=data)


def renewal(statements: Statements, leases: Sequence[JobLease]) -> Call:
    """Renew many leases in one statement (C5.2)."""
    ids, owner_tokens = ([lease.id for lease in leases], [lease.owner_token for lease in leases])
    return Call.of(statements.renew, ids=_uuid_array(ids), owner_tokens=_uuid_array(owner_tokens))


def _uuid_array(values: Sequence[UUID]) -> str:
    """Spell an array as PostgreSQL reads it: a driver asks of each of a thousand values what it is."""
    return "{" + ",".join([value.hex for value in values]) + "}"


def listing(statements: Statements, wanted: RunFilter, *, now_boot_s: float) -> Attempt[list[RunRecord]]:
    """List runs, those whose lease began last first."""
    query = statements.list_runs(
        by_code=wanted.code is not None, status=wanted.status, by_outcome=wanted.outcome is not None
    )
    call = Call(query, tuple(getattr(wanted, name) for name in query.parameters))
    return Attempt(
        call, lambda rows, _: [read_run(row) for row in rows], until_boot_s=now_boot_s + CALL_LIMIT_S, insists=False
    )


def lookup(statements: Statements, run: UUID | str, *, now_boot_s: float) -> Attempt[RunRecord | None]:
    """Find one run by its id or its lock key."""
    if isinstance(run, UUID):
        call = Call.of(statements.find_run_by_id, id=run)
    else:
        call = Call.of(statements.find_run_by_key, lock_key=run)
    return Attempt(
        call,
        lambda rows, _: read_run(rows[0]) if rows else None,
        until_boot_s=now_boot_s + CALL_LIMIT_S,
        insists=False,
    )


def attempts(statements: Statements, run: UUID | str, *, now_boot_s: float) -> Attempt[list[JobAttempt]]:
    """List a run's former attempts, by its id or its lock key."""
    if isinstance(run, UUID):
        call = Call.of(statements.list_attempts_by_id, id=run)
    else:
        call = Call.of(statements.list_attempts_by_key, lock_key=run)
    until_boot_s = now_boot_s + CALL_LIMIT_S
    return Attempt(call, lambda rows, _: [read_attempt(row) for row in rows], until_boot_s=until_boot_s, insists=False)


def read_loss(row: Row | None) -> JobNotAcquired:
    """Read why a run was not acquired from the row as it was when the statement began: ten columns."""
    if row is None:
        return JobNotAcquired(reason=NotAcquiredReason.CONTENDED)
    _, _, _, attempt, status, owner, started_us, modified_us, finished_us, lease_ms = row[:10]
    if status == JobSchedulerStatus.SUCCESS:
        finished = instant(modified_us if finished_us is None else finished_us)
        return JobNotAcquired(
            reason=NotAcquiredReason.SUCCEEDED,
            holder=owner,
            attempt=attempt,
            since=instant_or_none(started_us),
            finished_at=finished,
        )
    running = status == JobSchedulerStatus.RUNNING
    return JobNotAcquired(
        reason=NotAcquiredReason.RUNNING if running else NotAcquiredReason.CONTENDED,
        holder=owner,
        attempt=attempt,
        since=instant_or_none(started_us),
        expires_at=instant(modified_us + lease_ms * 1000) if running else None,
    )


def _why_refused(rows: Sequence[Row]) -> LostReason | None:
    verdict = rows[0][0] if rows else "gone"
    if verdict == JobSchedulerStatus.RUNNING:
        raise LookAgainError()
    return None if verdict == "done" else lost_reason(verdict)


def lost_reason(verdict: str) -> LostReason:
    """Say why a lease is lost whose row answered so: it is gone, taken, released, or settled under our token."""
    return {"gone": LostReason.ROW_GONE, "taken": LostReason.TAKEN_OVER}.get(verdict, LostReason.RELEASED)
