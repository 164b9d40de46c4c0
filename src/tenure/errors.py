"""What can go wrong, as a tree.

::

    TenureError
    ├── InvalidJobOptionsError               (also a ValueError)
    │   ├── InvalidJobIdentityOptionsError   code, run key, type, name
    │   ├── InvalidJobLeaseOptionsError      lease and heartbeat
    │   └── InvalidScheduleError             cron expression, time zone, period, instant
    ├── InvalidJobDataError                  (also a ValueError) what cannot be stored
    ├── LostJobLeaseError                    the lease is somebody else's, or nobody's
    ├── OutcomeNotRecordedError              the callback succeeded, the row does not say so
    ├── JobTimeoutError                      (also a TimeoutError) the callback took longer than its job allows
    ├── WaitTimeoutError                     the run did not end in the time given
    ├── JobDatabaseError                     unreachable, read-only, schema, grants
    ├── JobServiceStateError                 closed, another event loop, another process
    └── EmbeddedPostgresError                the local server cannot be had

No error carries an owner token, a password or a connection string (C11).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.lease import LostReason


class TenureError(Exception):
    """Stand above every error that tenure raises on purpose. Errors can be pickled: they cross processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args, self.__dict__)


def _remade(cls: type[TenureError], args: tuple[Any, ...], state: dict[str, Any]) -> TenureError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class InvalidJobOptionsError(TenureError, ValueError):
    """Refuse options; nothing was sent to the database (C2.1)."""


class InvalidJobIdentityOptionsError(InvalidJobOptionsError):
    """Refuse a code, type, run key or name (C2)."""


class InvalidJobLeaseOptionsError(InvalidJobOptionsError):
    """Refuse a lease length or a heartbeat (C3.1 to C3.3)."""


class InvalidScheduleError(InvalidJobOptionsError):
    """Refuse a cron expression, a time zone, a period, or an instant that is not aware (C10.1, C10.3)."""


class InvalidJobDataError(TenureError, ValueError):
    """Refuse data that PostgreSQL could not store; the run is left as it was (C6.2)."""


class LostJobLeaseError(TenureError):
    """Say that the lease is not ours any more, and why (C5.5, C6.5).

    The row was not changed by the call that raises this.
    """

    def __init__(self, reason: LostReason) -> None:
        super().__init__(f"The lease is lost: {reason.value}. Stop the work; this node can no longer settle the run.")
        self.reason = reason


class OutcomeNotRecordedError(TenureError):
    """Carry the result of a callback that succeeded while its SUCCESS could not be recorded (C6.4).

    The database may or may not have been changed. The run is never recorded as FAIL; if the row still says
    RUNNING, it expires with its lease and another node runs it again. The cause is chained.
    """

    def __init__(self, result: Any) -> None:
        super().__init__(
            "The callback succeeded, but SUCCESS could not be recorded in time. Its result is in .result; "
            "the run may be executed again once its lease has expired, so its effects must bear that."
        )
        self.result = result


class JobTimeoutError(TenureError, TimeoutError):
    """Say that a callback took longer than its job allows; its run is tried again by the job's rules (C10.5)."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"The job took longer than its timeout of {timeout_s:g} s. Give it more, or less to do.")


class WaitTimeoutError(TenureError):
    """Say that a run did not end in the time given, and who holds it, as far as that was seen (C8.1).

    If the database could not be asked when the time was up, what kept it from that is said, and is the cause.
    """

    def __init__(self, timeout_s: float, holder: str | None, trouble: Exception | None = None) -> None:
        held = f"it is held by {holder!r}" if holder else "no name of a holder was seen"
        told = f"{held}. Wait longer, or look at it with: tenure ls"
        if trouble:
            told = f"at last it could not be looked at: {str(trouble) or type(trouble).__name__}"
        super().__init__(f"The run did not end within {timeout_s:g} s; {told}")
        self.holder = holder


class DatabaseProblem(StrEnum):
    """Name what is wrong with the database, for programs."""

    UNREACHABLE = "unreachable"
    READ_ONLY = "read-only"
    SCHEMA_MISSING = "schema missing"
    SCHEMA_OLD = "schema old"
    GRANT_MISSING = "grant missing"
    BUSY = "busy"
    REFUSED = "refused"


class JobDatabaseError(TenureError):
    """Say what is wrong with the database, and how to mend it (C9.4).

    `may_have_changed` is True when the statement may have been committed although no answer came;
    `transient` is True when the same call may succeed later with nothing mended.
    """

    def __init__(
        self, problem: DatabaseProblem, message: str, *, may_have_changed: bool = False, transient: bool = False
    ) -> None:
        super().__init__(message)
        self.problem = problem
        self.may_have_changed = may_have_changed
        self.transient = transient


class JobServiceStateError(TenureError, RuntimeError):
    """Refuse a call that this service object cannot serve: closed, another event loop, another process."""


class EmbeddedPostgresError(TenureError):
    """Say why no local PostgreSQL can be started, and what to install or remove."""
