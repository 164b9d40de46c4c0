"""Leases as values, and what a holder knows about one (C4.3, C5.5, C5.6, C5.8, C11)."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from tenure import (
    DatabaseProblem,
    JobAcquired,
    JobDatabaseError,
    JobExecutionLease,
    JobLease,
    JobNotAcquired,
    JobSchedulerStatus,
    LostJobLeaseError,
    LostReason,
    NotAcquiredReason,
    OutcomeNotRecordedError,
    RunExclusiveResult,
    TenureError,
    WaitTimeoutError,
)
from tenure.lease import Hold
from tenure.trust import TrustWindow

RUN, TOKEN = UUID(int=1), UUID(int=2)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def hold_on(clock: Clock, heartbeat_s: float = 1.0) -> Hold:
    return Hold(TrustWindow(10.0, clock()), heartbeat_s, clock)


def won(hold: Hold | None = None) -> JobAcquired:
    return JobAcquired(RUN, TOKEN, "v2:key", 7, 3).held(hold)


class TestJobLease:
    def test_by_hand_from_text_or_uuid(self) -> None:
        """An id and an owner token are enough."""
        assert JobLease(str(RUN), str(TOKEN)) == JobLease(RUN, TOKEN)
        assert JobLease(RUN, TOKEN).id == RUN
        assert JobLease(RUN, TOKEN).owner_token == TOKEN
        with pytest.raises(ValueError, match="UUID"):
            JobLease("x", TOKEN)

    def test_equal_by_id_and_token(self) -> None:
        """A lease names one hold on one run, however it was come by."""
        same: list[JobLease] = [JobLease(RUN, TOKEN), won(), JobExecutionLease.of(won())]
        assert len(set(same)) == 1
        assert same[0] == same[1] == same[2]
        assert JobLease(RUN, TOKEN) != JobLease(RUN, uuid4())
        assert JobLease(RUN, TOKEN) != JobLease(uuid4(), TOKEN)
        assert JobLease(RUN, TOKEN) != (RUN, TOKEN)

    @pytest.mark.parametrize("through", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
    def test_a_copy_settles_the_run_and_knows_nothing_else(
        self, through: Callable[[JobLease], JobLease], clock: Clock
    ) -> None:
        """What crosses to another process is the id and the token; deadlines and losses stay here."""
        for lease in (JobLease(RUN, TOKEN), won(hold_on(clock)), JobExecutionLease.of(won(hold_on(clock)))):
            other = through(lease)
            assert type(other) is JobLease
            assert other == lease
            assert other.hold is None

    def test_it_cannot_be_changed(self) -> None:
        """A lease is a value."""
        lease = won()
        for name in ("id", "owner_token", "idempotency_key", "fencing_token", "attempt"):
            with pytest.raises(AttributeError):
                setattr(lease, name, None)
        with pytest.raises(AttributeError):
            lease.note = "x"  # type: ignore[attr-defined]

    def test_no_repr_shows_the_token(self, clock: Clock) -> None:
        """C11: only the id, and what is not secret."""
        lease = won(hold_on(clock))
        shown = [f"{x!r} {x}" for x in (lease, JobExecutionLease.of(lease), JobLease(RUN, TOKEN), lease.hold)]
        shown.append(repr(RunExclusiveResult(True, lease)))
        for text in shown:
            assert str(TOKEN) not in text
            assert TOKEN.hex not in text
        assert "fencing_token=7" in shown[0]
        assert "attempt=3" in shown[0]

    def test_results_are_told_apart_by_acquired(self) -> None:
        """C1: the literal field narrows."""
        assert won().acquired is True
        lost = JobNotAcquired(reason=NotAcquiredReason.RUNNING)
        assert lost.acquired is False
        assert (lost.holder, lost.since, lost.expires_at, lost.finished_at, lost.attempt) == (None,) * 5


class TestHold:
    def test_lost_at_the_deadline_and_for_ever(self, clock: Clock) -> None:
        """C5.5: unreachable with renewal; a renewal that comes after the deadline does not bring it back."""
        hold = hold_on(clock)
        clock.now_s = 109.499
        assert hold.look() is None
        assert hold.remaining_s() == pytest.approx(0.001)
        clock.now_s = 109.5
        hold.renewed(109.4)
        assert hold.look() is LostReason.UNREACHABLE
        clock.now_s = 101.0
        assert hold.look() is LostReason.UNREACHABLE

    def test_expired_without_renewal(self, clock: Clock) -> None:
        """C5.5: heartbeat 0."""
        hold = hold_on(clock, heartbeat_s=0.0)
        clock.now_s = 200.0
        assert hold.look() is LostReason.EXPIRED

    def test_a_renewal_moves_the_deadline(self, clock: Clock) -> None:
        """C3.6: from its sending."""
        hold = hold_on(clock)
        clock.now_s = 105.0
        hold.renewed(104.0)
        clock.now_s = 113.499
        assert hold.look() is None
        clock.now_s = 113.5
        assert hold.look() is LostReason.UNREACHABLE

    @pytest.mark.parametrize("reason", [LostReason.TAKEN_OVER, LostReason.RELEASED, LostReason.ROW_GONE])
    def test_a_rejection_tells_once(self, clock: Clock, reason: LostReason) -> None:
        """C5.5: the first reason stands, and whoever waits is told."""
        hold, told = hold_on(clock), [0]
        hold.on_change = lambda: told.append(1)
        hold.rejected(reason)
        hold.rejected(LostReason.UNREACHABLE)
        assert hold.look() is reason
        assert told == [0, 1]

    def test_a_settled_run_is_never_lost(self, clock: Clock) -> None:
        """C5.8: neither by time nor by a renewal that meets the settled row."""
        hold = hold_on(clock)
        hold.was_settled(JobSchedulerStatus.SUCCESS)
        hold.rejected(LostReason.RELEASED)
        clock.now_s = 1_000.0
        assert hold.look() is None

    def test_a_rejection_while_it_is_being_settled_waits_for_the_answer(self, clock: Clock) -> None:
        """C5.8: the settling statement itself may be what the renewal met."""
        hold = hold_on(clock)
        hold.settling = True
        hold.rejected(LostReason.RELEASED)
        assert hold.look() is None

    def test_check_raises_with_the_reason(self, clock: Clock) -> None:
        """C5.6."""
        lease = JobExecutionLease.of(won(hold_on(clock)))
        lease.check()
        assert lease.lost is None
        clock.now_s = 110.0
        assert lease.lost is LostReason.UNREACHABLE
        with pytest.raises(LostJobLeaseError, match="unreachable") as caught:
            lease.check()
        assert caught.value.reason is LostReason.UNREACHABLE


ERRORS: list[TenureError] = [
    LostJobLeaseError(LostReason.TAKEN_OVER),
    OutcomeNotRecordedError({"rows": 3}),
    WaitTimeoutError(1.5, "node-a"),
    JobDatabaseError(DatabaseProblem.BUSY, "busy", may_have_changed=True, transient=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("through", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy])
def test_errors_cross_processes(error: TenureError, through: Callable[[TenureError], TenureError]) -> None:
    """C11: an error that cannot be unpickled hangs a `multiprocessing.Pool` and breaks Celery's results."""
    other = through(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)


def test_every_reason_has_its_words() -> None:
    """C5.5: five reasons, each documented."""
    assert {reason.name for reason in LostReason} == {"TAKEN_OVER", "UNREACHABLE", "EXPIRED", "RELEASED", "ROW_GONE"}
    source = inspect.getsource(LostReason)
    assert source.count('"""') == 2 * (1 + len(LostReason))
