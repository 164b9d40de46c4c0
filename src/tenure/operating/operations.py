"""Each thing that operators ask and do, as a value: `service.perform(...)` brings it to its end, on both services.

No I/O, no clock. What is asked changes nothing. What is done is one statement; sent twice, because an answer was lost,
it is done once, and what was found is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from tenure.errors import InvalidJobOptionsError
from tenure.identity import storable_text
from tenure.operating import answers
from tenure.operating.checks import check_instant, check_limit
from tenure.operating.statements import OperatingStatements, Within
from tenure.operating.states import RunState
from tenure.operating.ticks import TickFacts
from tenure.operating.values import (
    Action,
    ActionAnswer,
    ActionKind,
    HistoryFilter,
    Overview,
    RunLife,
    RunPage,
    Timeline,
)
from tenure.operations import ACQUIRE_LIMIT_S, CALL_LIMIT_S, Attempt, Call, LookAgainError, Row, Try
from tenure.options import JobAcquireOptions, JobSchedulerStatus, JobSchedulerType
from tenure.scheduling.instants import run_key
from tenure.scheduling.run import MANUAL
from tenure.statements import Query
from tenure.trust import Backoff

R = TypeVar("R")

ALIVE: Final = timedelta(minutes=1)
"""How recently a node must have been heard of to count as living: twice the longest that a node keeps silent."""
RECENT: Final = 30
COUNT_LIMIT: Final = 100
"""How far exhausted runs of a job are counted in an overview."""
JOBS_LIMIT: Final = 1_000
LEASES_LIMIT: Final = 1_000
PAGE_LIMIT: Final = 1_000
TIMELINE_LIMIT: Final = 20_000

_UNFINISHED_OF_EACH_JOB: Final = 20
_LOOKED: Final = 20_000
"""How many runs a page looks at, at most, for those that its filter wants."""
_LOOKS: Final = 5
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_FILTER: Final = HistoryFilter()


def overview(
    statements: OperatingStatements, *, now_boot_s: float, alive: timedelta = ALIVE, recent: int = RECENT
) -> Attempt[Overview]:
    """Show everything at a glance: one statement, one snapshot, however much history there is.

    `recent` is how many runs of each job are shown, at most 100.
    """
    check_limit(recent, 100)
    call = Call.of(
        statements.overview,
        each=recent,
        most_jobs=JOBS_LIMIT,
        most_leases=LEASES_LIMIT,
        most_unfinished=_UNFINISHED_OF_EACH_JOB,
        most_exhausted=COUNT_LIMIT,
    )
    return _asking(call, lambda rows: answers.read_overview(rows, alive, LEASES_LIMIT), now_boot_s)


def history(
    statements: OperatingStatements,
    wanted: HistoryFilter = _NO_FILTER,
    *,
    now_boot_s: float,
    before: int | None = None,
    limit: int = 50,
) -> Attempt[RunPage]:
    """Show a page of runs, those whose lease began last first; `before` is what the page before it gave.

    Raises `InvalidJobOptionsError` for a filter that cannot be.
    """
    check_limit(limit, PAGE_LIMIT)
    values = _checked_filter(wanted)
    within = Within(
        code=wanted.code is not None,
        status=_status_of(wanted),
        before=before is not None,
        since=wanted.since is not None,
        until=wanted.until is not None,
        outcome=values["outcome"] is not None,
        holder=wanted.holder is not None,
        type=wanted.type is not None,
    )
    call = _named(statements.history(within), **values, before=before, limit=limit, looked=_LOOKED)
    return _asking(call, answers.read_page, now_boot_s)


def timeline(
    statements: OperatingStatements,
    since: datetime,
    until: datetime,
    *,
    now_boot_s: float,
    code: str | None = None,
    limit: int = 5_000,
) -> Attempt[Timeline]:
    """Show the runs that began between two instants, and those that are under way, of one job or of all."""
    check_limit(limit, TIMELINE_LIMIT)
    _check_span(since, until)
    query = statements.timeline(by_code=code is not None)
    call = _named(query, code=_checked_text("code", code), since=since, until=until, limit=limit)
    return _asking(call, lambda rows: answers.read_timeline(rows, since, until, limit), now_boot_s)


def life(statements: OperatingStatements, run: UUID | str, *, now_boot_s: float) -> Attempt[RunLife | None]:
    """Show a run's whole life, by its id or its idempotency key; `None` if there is no such run."""
    by_id = isinstance(run, UUID)
    call = _named(statements.life(by_id=by_id), id=run, lock_key=run if by_id else _checked_text("run", run))
    return _asking(call, answers.read_life, now_boot_s)


def tick_facts(
    statements: OperatingStatements, code: str, tick: datetime, *, now_boot_s: float, alive: timedelta = ALIVE
) -> Attempt[TickFacts]:
    """Learn all that is known of one tick, for `why.explain`; `tick` is an aware datetime, of a tick or not."""
    run = JobAcquireOptions(code=code, run_key=run_key(tick))
    call = Call.of(statements.tick, code=run.code, lock_key=run.lock_key)
    return _asking(call, lambda rows: answers.read_tick(rows[0], run.code, tick, alive), now_boot_s)


def release(
    statements: OperatingStatements,
    run: UUID,
    action: Action,
    *,
    now_boot_s: float,
    attempt: int | None = None,
    alive: timedelta = ALIVE,
) -> Attempt[ActionAnswer]:
    """End the lease of a run that somebody holds: it may be taken up by anybody at once.

    The former holder can settle nothing any more, and hears `LostReason.RELEASED` at its next renewal; its callback may
    go on until then. With `attempt`, only if the run is still at that attempt. Uses up no attempt of the job's.
    """
    call = _acting(statements.release, action, alive, id=run, attempt=attempt)
    return _concluding(call, ActionKind.RELEASED, now_boot_s)


def retry(
    statements: OperatingStatements,
    run: UUID,
    action: Action,
    *,
    now_boot_s: float,
    force: bool = False,
    attempt: int | None = None,
    alive: timedelta = ALIVE,
) -> Attempt[ActionAnswer]:
    """Make a run due again that has failed, used up its attempts, or never ran: one more attempt, at once.

    A run that has succeeded is refused unless `force`: its effects happen again, under the same idempotency key. A run
    that no scheduler has had to do with is taken up by the next `acquire`, not by itself.
    """
    call = _acting(statements.retry, action, alive, id=run, attempt=attempt, force=force)
    return _concluding(call, ActionKind.RETRIED, now_boot_s)


def skip(
    statements: OperatingStatements,
    code: str,
    tick: datetime,
    action: Action,
    *,
    now_boot_s: float,
    fingerprint: str | None = None,
    alive: timedelta = ALIVE,
) -> Attempt[ActionAnswer]:
    """Decide that a tick does not run: one to come, one that was missed, or a run of it that waits.

    Never over a run that is under way or has ended. It is not checked that the schedule has such a tick: count ticks by
    `schedule_of`, and give the schedule's `fingerprint`, so that a schedule that has changed meanwhile is told.
    """
    key = run_key(tick)
    run = JobAcquireOptions(code=code, run_key=key)
    # a run key cuts off what is finer than a millisecond, and so does the tick that it names
    named = tick.replace(microsecond=tick.microsecond // 1000 * 1000)
    call = _acting(
        statements.skip, action, alive,
        code=run.code, lock_key=run.lock_key, run_key=key, tick=named, fingerprint=fingerprint,
    )  # fmt: skip
    return _concluding(call, ActionKind.SKIPPED, now_boot_s)


def trigger(
    statements: OperatingStatements,
    code: str,
    action: Action,
    *,
    now_boot_s: float,
    at: datetime | None = None,
    alive: timedelta = ALIVE,
) -> Attempt[ActionAnswer]:
    """Ask for a run of a registered job by hand, beside its ticks: whoever runs the job takes it up.

    It stands for `at`, an aware datetime, a tick that is to be run again, say; left out, for now.
    """
    check_instant("at", at)
    key = f"{MANUAL}{action.token}" if at is None else f"{MANUAL}{run_key(at)}:{action.token}"
    run = JobAcquireOptions(code=code, run_key=key)
    call = _acting(statements.trigger, action, alive, code=run.code, lock_key=run.lock_key, run_key=run.run_key, at=at)
    return _concluding(call, ActionKind.TRIGGERED, now_boot_s)


def pause(
    statements: OperatingStatements, code: str, action: Action, *, now_boot_s: float, alive: timedelta = ALIVE
) -> Attempt[ActionAnswer]:
    """Pause a job: its ticks do not run, and its waiting runs are not taken up. Runs under way go on."""
    call = _acting(statements.pause, action, alive, code=_checked_text("code", code), kind=ActionKind.PAUSED.value)
    return _concluding(call, ActionKind.PAUSED, now_boot_s)


def resume(
    statements: OperatingStatements, code: str, action: Action, *, now_boot_s: float, alive: timedelta = ALIVE
) -> Attempt[ActionAnswer]:
    """Resume a job; ticks that came due meanwhile stay paused."""
    call = _acting(statements.resume, action, alive, code=_checked_text("code", code), kind=ActionKind.RESUMED.value)
    return _concluding(call, ActionKind.RESUMED, now_boot_s)


def _acting(query: Query, action: Action, alive: timedelta, **values: Any) -> Call:
    if not isinstance(action, Action):
        raise TypeError(f"action must be an Action, which says who acts and why; not {type(action).__name__}.")
    told = {"by": action.by, "reason": action.reason, "action_token": action.token, "alive_ms": alive // _MILLISECOND}
    return _named(query, **told, **values)


def _concluding(call: Call, kind: ActionKind, now_boot_s: float) -> Attempt[ActionAnswer]:
    looks = iter(range(_LOOKS))

    def conclude(rows: Sequence[Row], this: Try) -> ActionAnswer:
        # a renewal may just have held the row; or our own first try, whose answer was lost
        if rows[0][0] == "contended" and (this.uncertain or next(looks, None) is not None):
            raise LookAgainError()
        return answers.read_action(rows[0], kind)

    return Attempt(
        call, conclude, until_boot_s=now_boot_s + ACQUIRE_LIMIT_S, insists=False, backoff=Backoff(0.02, 0.2)
    )  # fmt: skip


def _asking(call: Call, read: Callable[[Sequence[Row]], R], now_boot_s: float) -> Attempt[R]:
    return Attempt(call, lambda rows, _: read(rows), until_boot_s=now_boot_s + CALL_LIMIT_S, insists=False)


def _named(query: Query, **values: Any) -> Call:
    """Put named values in the statement's order; those that it does not ask for are left out."""
    return Call(query, tuple(values[name] for name in query.parameters))


def _checked_filter(wanted: HistoryFilter) -> dict[str, Any]:
    check_instant("since", wanted.since)
    check_instant("until", wanted.until)
    if wanted.state is RunState.RUNNING or wanted.state is RunState.EXPIRED:
        raise InvalidJobOptionsError(f"state cannot be {wanted.state.value!r} here. Ask for status RUNNING.")
    kind = None if wanted.type is None else JobSchedulerType(wanted.type)
    return {
        "code": _checked_text("code", wanted.code),
        "holder": _checked_text("holder", wanted.holder),
        "since": wanted.since,
        "until": wanted.until,
        "outcome": None if wanted.state is None else wanted.state.value,
        "type": None if kind is None else kind.value,
    }


def _status_of(wanted: HistoryFilter) -> str | None:
    """Give the status that all wanted runs have, so that an index of such runs serves."""
    if wanted.status is not None:
        return JobSchedulerStatus(wanted.status).value
    if wanted.state is None:
        return None
    succeeded = wanted.state.never_ran or wanted.state is RunState.SUCCEEDED
    return JobSchedulerStatus.SUCCESS.value if succeeded else JobSchedulerStatus.FAIL.value


def _check_span(since: datetime, until: datetime) -> None:
    check_instant("since", since)
    check_instant("until", until)
    if since >= until:
        raise InvalidJobOptionsError("since must be earlier than until. Swap them, or give others.")


def _checked_text(name: str, value: Any) -> str | None:
    return None if value is None else storable_text(name, value)
