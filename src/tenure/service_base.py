"""What the two services share: their table and keeper, who they are, and what they note about a lease. No I/O."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID
from weakref import WeakSet, WeakValueDictionary

from tenure import operations
from tenure.attempts import JobAttempt
from tenure.clock import boot_s
from tenure.data import clean_text, encode_checkpoint, encode_data
from tenure.drivers import (
    AsyncDatabase,
    AsyncDriver,
    Connector,
    Driver,
    Link,
    Rows,
    SyncDatabase,
    resolve_connector,
)
from tenure.drivers.guests import Guest, OutsideTransactionError, guest_of
from tenure.endings import Ending
from tenure.errors import InvalidJobOptionsError, JobDatabaseError, JobServiceStateError, LostJobLeaseError
from tenure.identity import storable_text
from tenure.keeper import Keeper
from tenure.lease import Hold, JobAcquired, JobAcquireResult, JobExecutionLease, JobLease, LostReason
from tenure.lookout import Lookout
from tenure.operations import Answer, Attempt, Call, GuestEnd, Settled
from tenure.options import JobAcquireOptions, JobSchedulerStatus
from tenure.records import RunFilter, RunRecord
from tenure.statements import DEFAULT_SCHEMA, DEFAULT_TABLE, Statements, Table

A = TypeVar("A", bound=Answer)
D = TypeVar("D", Driver, AsyncDriver)
B = TypeVar("B")
L = TypeVar("L", bound=JobExecutionLease)
OnLost = Literal["cancel", "continue"]

logger = logging.getLogger("tenure")

RELEASED: Final[Mapping[str, Any]] = MappingProxyType({"released": True})
OUTSIDE_TRANSACTION: Final = (
    "The connection has no transaction open, so nothing would be done together. Open one first (BEGIN, or the "
    "transaction block of your driver), and pass the connection inside it."
)
ROLLED_BACK: Final[Mapping[str, Any]] = MappingProxyType(
    {"error": "the transaction that completed the run was rolled back"}
)
OTHER_LOOP: Final = (
    "This service belongs to another event loop, the first that used it. Make one service for each loop, inside the "
    "coroutine that the loop runs."
)
OWNER_LABEL_LIMIT: Final = 256

_living: WeakSet[ServiceBase[Any, Any]] = WeakSet()
_abandoned: list[object] = []
"""What a forked child inherited and must neither use nor close: its sockets and its threads are the parent's."""


class ServiceBase(Generic[D, B]):
    """Hold the parts of a service, and remake them in a forked child."""

    def __init__(
        self,
        database: B | None = None,
        *,
        schema: str = DEFAULT_SCHEMA,
        table: str = DEFAULT_TABLE,
        owner_label: str | None = None,
        heartbeat_database: SyncDatabase | AsyncDatabase | None = None,
    ) -> None:
        self._database = database
        self._table = Table(schema, table)
        self._statements = Statements(self._table)
        self._owner_label = _checked_label(owner_label)
        self._closed = False
        self._forked = False
        self._holds: WeakValueDictionary[UUID, Hold] = WeakValueDictionary()
        self._driver: D = self._make_driver()
        self._heartbeat_driver = resolve_connector(heartbeat_database, self._table) if heartbeat_database else None
        self._keeper, self._lookout = self._make_threads()
        _living.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<{type(self).__name__} {self._table.quoted} as {self.owner_label!r}, {state}>"

    def _make_driver(self) -> D:
        raise NotImplementedError

    def _make_threads(self) -> tuple[Keeper, Lookout]:
        """Make what renews and what looks; neither starts its thread before it has work."""
        driver: Connector = self._heartbeat_driver or self._driver
        stays = driver.stays_on_loop

        def connect(limit_s: float) -> Coroutine[Any, Any, Link]:
            return driver.link(limit_s=limit_s)

        return (
            Keeper(connect, self._statements, stays_on_loop=stays),
            Lookout(connect, self._statements, stays_on_loop=stays),
        )

    def _start_afresh(self) -> None:
        """Leave the parent its connections, its keeper and its leases; a pool that was given cannot be remade."""
        _abandoned.append((self._driver, self._keeper, self._lookout))
        self._forked = True
        if not self._driver.given:
            self._driver = self._make_driver()
        self._keeper, self._lookout = self._make_threads()

    def _close_threads(self) -> None:
        self._closed = True
        self._keeper.close()
        self._lookout.close()

    def _check_open(self) -> None:
        if self._closed:
            raise JobServiceStateError("This service is closed. Make a new one.")
        self._check_process()

    def _check_process(self) -> None:
        if self._forked and self._driver.given:
            raise JobServiceStateError(
                "This service was given its pool or engine before os.fork(), and a pool does not survive a fork. Make "
                "both in the child, or give the service a connection string."
            )

    def _check_not_forked_since(self, keeper: Keeper) -> None:
        if keeper is not self._keeper:
            raise JobServiceStateError(
                "The callback returned in a forked child. The run belongs to the parent and is settled there; end the "
                "child with os._exit(), or start it with multiprocessing."
            )

    @property
    def owner_label(self) -> str:
        """Name this service to people: as given, else `host:pid`. It decides nothing."""
        return self._owner_label or f"{socket.gethostname()}:{os.getpid()}"[:OWNER_LABEL_LIMIT]

    @property
    def table(self) -> Table:
        """Name the table of runs, for those who bring statements of their own on it and the tables beside it."""
        return self._table

    def _acquisition(self, options: JobAcquireOptions, owner_token: UUID, owner: str) -> Attempt[JobAcquireResult]:
        if not isinstance(options, JobAcquireOptions):
            raise TypeError(f"options must be a JobAcquireOptions, not {type(options).__name__}.")
        return operations.acquisition(self._statements, options, owner_token, owner, now_boot_s=boot_s(), clock=boot_s)

    def _settlement(
        self,
        lease: JobLease,
        status: JobSchedulerStatus,
        data: str | None,
        limit_s: float | None = None,
        ending: Ending = Ending(),  # noqa: B008 - a frozen value
    ) -> Attempt[Settled]:
        """Give a settlement that is tried until the local deadline for SUCCESS, and for 5 s for FAIL (C6.3, C6.4)."""
        check_lease(lease)
        now_s = boot_s()
        hold = self._hold_of(lease)
        if limit_s is not None:
            until_s = now_s + limit_s
        elif status is JobSchedulerStatus.FAIL:
            until_s = now_s + operations.FAIL_LIMIT_S
        elif hold is not None:
            until_s = max(hold.window.deadline_boot_s, now_s + operations.LATE_LIMIT_S)
        else:
            until_s = now_s + operations.COMPLETE_LIMIT_S
        return operations.settlement(self._statements, lease, status, data, until_boot_s=until_s, ending=ending)

    def _hold_of(self, lease: JobLease) -> Hold | None:
        return lease.hold or self._holds.get(lease.owner_token)

    def _renewal(self, lease: JobLease, now_boot_s: float) -> Attempt[LostReason | None]:
        check_lease(lease)
        return operations.renewal_by_hand(self._statements, lease, now_boot_s=now_boot_s)

    def _listing(
        self, code: str | None, status: JobSchedulerStatus | None, outcome: str | None, limit: int
    ) -> Attempt[list[RunRecord]]:
        wanted = RunFilter(code=code, status=status, outcome=outcome, limit=limit)
        return operations.listing(self._statements, wanted, now_boot_s=boot_s())

    def _lookup(self, run: UUID | str) -> Attempt[RunRecord | None]:
        if not isinstance(run, UUID):
            storable_text("run", run)
        return operations.lookup(self._statements, run, now_boot_s=boot_s())

    def _attempts(self, run: UUID | str) -> Attempt[list[JobAttempt]]:
        if not isinstance(run, UUID):
            storable_text("run", run)
        return operations.attempts(self._statements, run, now_boot_s=boot_s())

    def _saving(self, lease: JobLease, data: Mapping[str, Any]) -> Attempt[LostReason | None]:
        text = encode_checkpoint(data)
        check_lease(lease)
        self._check_process()
        return operations.saving(self._statements, lease, text, now_boot_s=boot_s())

    def _guest_saving(self, lease: JobLease, data: Mapping[str, Any], connection: object) -> tuple[Guest, Call]:
        """Give what saves a checkpoint in a caller's transaction (C7.6)."""
        text = encode_checkpoint(data)
        check_lease(lease)
        self._check_process()
        return open_guest(connection), operations.guest_saving(self._statements, lease, text)

    def _note_saved(self, lease: JobLease, refused: LostReason | None) -> None:
        """Raise if the row was not ours."""
        if refused is None:
            return
        hold = self._hold_of(lease)
        if not (hold and hold.guest):  # else that same transaction has settled the run, and may still commit
            self._note_refusal(lease, refused)
        raise LostJobLeaseError(refused)

    @contextmanager
    def _freeing_if_unsure(self, owner_token: UUID) -> Generator[None]:
        """Have the keeper free what an acquire may have won, when its answer was lost with an error (C4.6)."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, JobDatabaseError) or error.may_have_changed:
                self._keeper.disown(owner_token)
            raise

    def _answered(self, owner_token: UUID, attempt: Attempt[A], answer: A) -> A:
        """Remember a win, for leases made by hand from it; free what an earlier try of a loss may still win (C4.6)."""
        won = operations.win_in(answer)
        if won and won.hold:
            self._holds[owner_token] = won.hold
        elif attempt.uncertain:
            self._keeper.disown(owner_token)
        return answer

    def _guest_call(
        self, lease: JobLease, status: JobSchedulerStatus, data: Mapping[str, Any] | None, connection: object
    ) -> tuple[Guest, Call]:
        """Give what records an outcome in a caller's transaction (C7.2)."""
        text = encode_data(data)
        check_lease(lease)
        self._check_process()
        return open_guest(connection), operations.guest_settlement(self._statements, lease, status, text)

    def _note_guest(self, lease: JobLease, status: JobSchedulerStatus, rows: Rows) -> bool:
        """Take note that a caller's transaction records the outcome; raise if the row was not ours (C6.1)."""
        hold = self._hold_of(lease)
        if reason := operations.why_refused(rows):
            if not (hold and hold.guest):  # else that same transaction has settled it before, and may still commit
                self._note_refusal(lease, reason)
            raise LostJobLeaseError(reason)
        if hold:
            hold.guest = status
        return True

    def _note_guest_end(self, hold: Hold, end: GuestEnd) -> bool:
        """Take note of how a caller's transaction ended; `False` says that it was rolled back and the row is ours."""
        status, hold.guest = hold.guest, None
        if end is GuestEnd.LOST:
            hold.rejected(LostReason.TAKEN_OVER)
            raise LostJobLeaseError(LostReason.TAKEN_OVER)
        if end is GuestEnd.ROLLED_BACK:
            return False
        if status is not None:
            hold.was_settled(status)
        return True

    def _held(self, won: JobAcquired, kind: type[L], checkpoint: Callable[..., Any]) -> tuple[L, Hold]:
        """Give the lease for a callback, and what is known about it."""
        lease, hold = kind.of(won), won.hold
        assert hold is not None, "a lease that was won here has a hold"
        hold.guard = lambda connection: guard(operations.guarding(self._statements, lease), hold, connection)
        hold.checkpoint = partial(checkpoint, lease)
        return lease, hold

    @contextmanager
    def _settling(self, lease: JobLease) -> Generator[None]:
        """Keep a renewal that meets the settled row from taking it for a loss (C5.8)."""
        hold = self._hold_of(lease)
        if hold is None:
            yield
            return
        hold.settling = True
        try:
            yield
        finally:
            hold.settling = False

    def _note_settled(self, lease: JobLease, settled: Settled) -> bool:
        if settled.refused is None:
            self._keeper.let_go(lease)
            if hold := self._hold_of(lease):
                hold.was_settled(settled.status)
            return True
        if not settled.already:
            self._note_refusal(lease, settled.refused)
        return False

    def _note_renewal(self, lease: JobLease, refused: LostReason | None, sent_boot_s: float) -> bool:
        if refused is not None:
            self._note_refusal(lease, refused)
        elif hold := self._hold_of(lease):
            hold.renewed(sent_boot_s)
        return refused is None

    def _note_refusal(self, lease: JobLease, reason: LostReason) -> None:
        self._keeper.let_go(lease)
        if hold := self._hold_of(lease):
            hold.settling = False
            hold.rejected(reason)


def check_lease(lease: JobLease) -> None:
    """Refuse what is no lease: what a lost `acquire` gave, say."""
    if not isinstance(lease, JobLease):
        raise TypeError(f"lease must be a JobLease, such as what acquire gives for a win; not {type(lease).__name__}.")


def check_on_lost(on_lost: str) -> None:
    """Refuse what is neither."""
    if on_lost not in ("cancel", "continue"):
        raise ValueError(f"on_lost must be 'cancel' or 'continue', not {on_lost!r}.")


def open_guest(connection: object) -> Guest:
    """Choose how to send over a caller's connection, and refuse one that has no transaction open."""
    try:
        return guest_of(connection)
    except OutsideTransactionError:
        raise JobServiceStateError(OUTSIDE_TRANSACTION) from None


def guard(call: Call, hold: Hold, connection: object) -> Awaitable[None] | None:
    """Guard a run in a caller's transaction; give an awaitable for an async connection (C7.3)."""
    guest = open_guest(connection)
    if guest.is_async:
        return _guard_async(guest, call, hold)
    _check_guarded(guest.rows(call), hold)
    return None


async def _guard_async(guest: Guest, call: Call, hold: Hold) -> None:
    _check_guarded(await rows_async(guest, call), hold)


async def rows_async(guest: Guest, call: Call) -> Rows:
    """Send over a caller's connection of either kind; some tell only then that no transaction is open."""
    try:
        return await guest.rows_async(call)
    except OutsideTransactionError:
        raise JobServiceStateError(OUTSIDE_TRANSACTION) from None


def _check_guarded(rows: Rows, hold: Hold) -> None:
    if rows and hold.guest and rows[0][0] == hold.guest.value:
        return  # this very transaction has settled the run: nobody can take it any more
    if reason := operations.why_refused(rows):
        hold.rejected(reason)
        raise LostJobLeaseError(reason)


def _checked_label(label: str | None) -> str | None:
    if label is None:
        return None
    if (
        not isinstance(label, str)
        or not 1 <= len(label) <= OWNER_LABEL_LIMIT
        or clean_text(label, 4 * len(label)) != label
    ):
        raise InvalidJobOptionsError(
            f"owner_label must be 1 to {OWNER_LABEL_LIMIT} characters without control characters or lone surrogates."
        )
    return label


def _start_living_afresh() -> None:
    for service in list(_living):
        service._start_afresh()  # pyright: ignore[reportPrivateUsage] - this module's own class


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_living_afresh)
