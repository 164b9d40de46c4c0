"""Why a tick did or did not run: from facts to words, pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from tenure.durations import format_duration
from tenure.errors import InvalidJobOptionsError
from tenure.operating.jobs import due_since, grace_of, schedule_of
from tenure.operating.states import RunState
from tenure.operating.ticks import TickFacts, Why, WhyVerdict
from tenure.operating.values import ActionKind, ActionRecord, RunGlance
from tenure.scheduling.schedule import Schedule

Told = tuple[WhyVerdict, list[str], list[str]]

_MILLISECOND: Final = timedelta(milliseconds=1)


def explain(facts: TickFacts) -> Why:
    """Say why a tick did or did not run, or whether the instant is a tick at all."""
    schedule, trouble = _schedule(facts)
    verdict, sentences, advice = _of_run(facts, facts.run) if facts.run else _of_no_run(facts, schedule)
    sentences += [f"Its schedule cannot be read here: {trouble}"] if trouble else []
    return Why(
        verdict=verdict,
        ran=facts.run is not None and facts.run.attempt > 0,
        sentences=(*sentences, *_by_operators(facts)),
        advice=tuple(advice),
        previous_tick=schedule.previous(facts.tick) if schedule else None,
        next_tick=schedule.next_after(facts.tick) if schedule else None,
        facts=facts,
    )


def _schedule(facts: TickFacts) -> tuple[Schedule | None, str | None]:
    try:
        return schedule_of(facts.job), None
    except InvalidJobOptionsError as error:
        return None, str(error)


# There is a row.


def _of_run(facts: TickFacts, run: RunGlance) -> Told:
    told = _TELLERS.get(run.state, _waiting)(facts, run)
    if run.state.waits and facts.job and facts.job.paused_at:
        return WhyVerdict.HELD_BY_PAUSE, [*told[1], _paused_now(facts)], [f"Resume the job: tenure resume {facts.code}"]
    if run.state.waits and facts.job and facts.job.orphaned:
        return told[0], [*told[1], _nobody(facts)], [_START_A_NODE]
    return told


def _succeeded(_facts: TickFacts, run: RunGlance) -> Told:
    lag = f", {_words(run.lag)} after its tick" if run.lag is not None else ""
    took = f" and took {_words(run.duration)}" if run.duration is not None else ""
    first = f"It ran on {_holder(run)}, began at {_at(run.started_at)}{lag}{took}, and succeeded."
    return WhyVerdict.SUCCEEDED, [first, *_attempts(run)], []


def _running(_facts: TickFacts, run: RunGlance) -> Told:
    left = "an unknown time" if run.lease_left is None else _words(run.lease_left)
    sentences = [
        f"It is running on {_holder(run)} since {_at(run.started_at)}, attempt {run.attempt}.",
        f"Its lease was renewed last at {_at(run.modified_at)} and has {left} left.",
    ]
    return WhyVerdict.RUNNING, sentences, [f"To take it away from that node: tenure release {run.id} --reason ..."]


def _expired(facts: TickFacts, run: RunGlance) -> Told:
    ago = _words(facts.clock - due_since(run))
    sentences = [
        f"{run.holder or 'A NestJS node'} began attempt {run.attempt} at {_at(run.started_at)} and was last heard of "
        f"at {_at(run.modified_at)}; its lease ran out {ago} ago.",
        "Any node that runs the job takes it up by itself."
        if run.scheduled_at
        else "No scheduler knows it: the next acquire takes it.",
    ]
    return WhyVerdict.EXPIRED, sentences, []


def _failed(facts: TickFacts, run: RunGlance) -> Told:
    how = "took longer than its job allows" if run.state is RunState.TIMED_OUT else "failed"
    sentences = [f"Attempt {run.attempt} on {_holder(run)} {how} at {_at(run.finished_at)}{_error(run)}."]
    if run.retry_at is not None and run.retry_at > facts.clock:
        sentences.append(f"It is tried again from {_at(run.retry_at)} on, in {_words(run.retry_at - facts.clock)}.")
    elif run.scheduled_at:
        sentences.append("It is due for its next attempt now.")
    else:
        sentences.append("No scheduler knows it: the next acquire takes it.")
    return WhyVerdict.RETRYING, sentences, [f"To try it again at once: tenure retry {run.id} --reason ..."]


def _exhausted(facts: TickFacts, run: RunGlance) -> Told:
    most = (facts.job.policy or {}).get("max_attempts") if facts.job else None
    allowed = f" of the {most} that its job allows" if isinstance(most, int) else ""
    sentences = [
        f"It has used up its attempts: {run.attempt}{allowed}. The last one, on {_holder(run)}, ended at "
        f"{_at(run.finished_at)}{_error(run)}.",
        "Nobody takes it up by itself any more.",
    ]
    return (
        WhyVerdict.EXHAUSTED,
        sentences,
        [
            f"When the cause is mended: tenure retry {run.id} --reason ...",
            f"To give it up: tenure skip {facts.code} {_key(facts.tick)} --reason ...",
        ],
    )


def _waiting(_facts: TickFacts, run: RunGlance) -> Told:
    what = {
        RunState.QUEUED: "Another run of the job was under way at its time: it waits for that one to end.",
        RunState.TRIGGERED: "Somebody asked for it by hand.",
        RunState.RELEASED: f"Attempt {run.attempt} was given back at {_at(run.finished_at)}.",
        RunState.RETRIED: "An operator asked for another attempt.",
    }[run.state]
    return WhyVerdict.WAITING, [what, f"It may be taken up since {_at(due_since(run))}; no node has yet."], []


def _skipped(facts: TickFacts, run: RunGlance) -> Told:
    again = [f"To run it after all: tenure retry {run.id} --reason ..."]
    if any(action.kind is ActionKind.SKIPPED for action in facts.actions):
        return WhyVerdict.SKIPPED, [f"An operator gave it up at {_at(run.finished_at)}.", *_attempts(run)], again
    rule = (facts.job.policy or {}).get("catch_up") if facts.job else None
    by = f" Its job's rule is catch_up={rule!r}." if rule else ""
    sentence = (
        f"It was missed: no node took it at its time, and when one decided, at {_at(run.finished_at)}, it was not to "
        f"be caught up with.{by}"
    )
    return WhyVerdict.SKIPPED, [sentence], again


def _too_late(facts: TickFacts, run: RunGlance) -> Told:
    most = (facts.job.policy or {}).get("max_lateness_ms") if facts.job else None
    allowed = f", and its job allows {_words(most * _MILLISECOND)}" if isinstance(most, int) else ""
    late = _words((run.finished_at or run.created_at) - facts.tick)
    sentence = f"It came too late: it could have begun {late} after its tick{allowed}."
    return WhyVerdict.TOO_LATE, [sentence], [f"To run it all the same: tenure retry {run.id} --reason ..."]


def _overlapped(facts: TickFacts, run: RunGlance) -> Told:
    other = ""
    if facts.other is not None:
        until = f"until {_at(facts.other.finished_at)}" if facts.other.finished_at else "and still is"
        other = f" It was that for {_at(facts.other.at)}, on {_holder(facts.other)}, {until}."
    sentence = f"Another run of the job was under way, and its ticks do not overlap.{other}"
    return WhyVerdict.OVERLAPPED, [sentence], [f"To run it now: tenure retry {run.id} --reason ..."]


def _paused(facts: TickFacts, run: RunGlance) -> Told:
    pause = facts.pause
    if pause is not None and pause.kind is ActionKind.PAUSED:
        by = f" It was paused at {_at(pause.at)}{_who(pause)}."
    elif facts.job is not None and facts.job.paused_at is not None and facts.job.paused_at <= run.created_at:
        by = " " + _paused_now(facts)
    else:
        by = ""
    sentence = f"The job was paused when the tick was due.{by}"
    return WhyVerdict.PAUSED, [sentence], [f"To run it after all: tenure retry {run.id} --reason ..."]


_TELLERS: Final[dict[RunState, Callable[[TickFacts, RunGlance], Told]]] = {
    RunState.SUCCEEDED: _succeeded,
    RunState.RUNNING: _running,
    RunState.EXPIRED: _expired,
    RunState.FAILED: _failed,
    RunState.TIMED_OUT: _failed,
    RunState.EXHAUSTED: _exhausted,
    RunState.SKIPPED: _skipped,
    RunState.TOO_LATE: _too_late,
    RunState.OVERLAPPED: _overlapped,
    RunState.PAUSED: _paused,
}


# There is none.


def _of_no_run(facts: TickFacts, schedule: Schedule | None) -> Told:
    job = facts.job
    if job is None:
        return WhyVerdict.UNKNOWN_JOB, [f"No job {facts.code!r} was ever registered here."], [_SEE_CODES]
    if schedule is not None and schedule.tick_at(facts.tick, timedelta(0)) != facts.tick:
        return _not_a_tick(facts, schedule)
    if facts.tick > facts.clock:
        return _future(facts)
    if facts.tick <= job.watermark:
        return _gone(facts)
    if job.fingerprint is None:
        return WhyVerdict.UNKNOWN_JOB, ["The job is known only because old runs of it were removed."], [_SEE_CODES]
    return _undecided(facts, schedule)


def _not_a_tick(facts: TickFacts, schedule: Schedule) -> Told:
    before, after = schedule.previous(facts.tick), schedule.next_after(facts.tick)
    near = " and ".join(_at(tick) for tick in (before, after) if tick)
    sentence = f"{_at(facts.tick)} is no tick of the job: it runs {schedule.describe()}. The nearest are {near}."
    return WhyVerdict.NOT_A_TICK, [sentence, *_changed(facts)], []


def _future(facts: TickFacts) -> Told:
    sentences = [f"It is still to come, in {_words(facts.tick - facts.clock)} by the database's clock."]
    job = facts.job
    if job is not None and job.paused_at is not None:
        return (
            WhyVerdict.FUTURE,
            [*sentences, f"It will not run as things are: {_paused_now(facts)}"],
            [f"Resume the job: tenure resume {facts.code}"],
        )
    if job is not None and job.orphaned:
        return WhyVerdict.FUTURE, [*sentences, f"As things are nobody will run it. {_nobody(facts)}"], [_START_A_NODE]
    return WhyVerdict.FUTURE, sentences, []


def _gone(facts: TickFacts) -> Told:
    assert facts.job is not None, "only a known job has a watermark"
    if facts.tick <= facts.job.known_since:
        known = _at(facts.job.known_since)
        sentence = f"The job was first registered at {known}, after this tick. No job runs for the time before."
        return WhyVerdict.BEFORE_KNOWN, [sentence], []
    sentences = [
        f"It was decided: every tick up to {_at(facts.job.watermark)} is. Its row is gone: removed as old by the "
        "retention, or by hand. A removed tick never runs again.",
        *_changed(facts),
    ]
    return WhyVerdict.REMOVED, sentences, [f"To run the job once more: tenure trigger {facts.code} --reason ..."]


def _undecided(facts: TickFacts, schedule: Schedule | None) -> Told:
    job, late = facts.job, facts.clock - facts.tick
    assert job is not None, "only a known job has ticks to decide"
    decided = f"Nobody has decided it yet; the job's ticks are decided up to {_at(job.watermark)}."
    if job.paused_at is not None:
        sentences = [_paused_now(facts), decided]
        return WhyVerdict.PAUSED, sentences, [f"Resume the job: tenure resume {facts.code}"]
    if job.orphaned:
        return WhyVerdict.ORPHANED, [_nobody(facts), decided], [_START_A_NODE]
    if len(job.disagreeing) == len(job.nodes):
        return WhyVerdict.ORPHANED, [*_changed(facts), decided], [_RESTART_NODES]
    if late <= grace_of(job):
        return WhyVerdict.DUE, [f"It is due since {_words(late)}. {decided}", *_jitter(facts)], []
    sentences = [f"It is overdue since {_words(late)}. {decided}", *_jitter(facts), *_too_late_now(facts)]
    if schedule is not None and (before := schedule.previous(facts.tick)) is not None and job.watermark < before:
        sentences.append(f"Ticks before it come first, from {_at(schedule.next_after(job.watermark))} on.")
    sentences.append(f"It should be run by one of: {', '.join(job.nodes)}. They may be busy, stopped or cut off.")
    return WhyVerdict.OVERDUE, sentences, ["Look at the logs of those nodes, and at: tenure doctor"]


def _too_late_now(facts: TickFacts) -> list[str]:
    most = (facts.job.policy or {}).get("max_lateness_ms") if facts.job else None
    if not isinstance(most, int) or facts.clock - facts.tick <= most * _MILLISECOND:
        return []
    return [f"Whoever decides it now will find it too late: its job allows {_words(most * _MILLISECOND)}."]


def _jitter(facts: TickFacts) -> list[str]:
    jitter = (facts.job.policy or {}).get("jitter_ms") if facts.job else None
    return (
        [f"Its job begins up to {_words(jitter * _MILLISECOND)} late, at random."]
        if isinstance(jitter, int) and jitter
        else []
    )


# What is said in several places.

_START_A_NODE: Final = "Start a node that registers the job."
_RESTART_NODES: Final = "Restart the nodes that were started with another schedule, with the new code."
_SEE_CODES: Final = "See which jobs there are: tenure status"


def _nobody(facts: TickFacts) -> str:
    """Say that no living node runs the job, and who did last."""
    silent = [node for node in facts.nodes if facts.code in node.jobs]
    if silent:
        last = min(silent, key=lambda node: node.silent_for)
        return f"No living node runs the job; {last.label} did, and was last heard of {_words(last.silent_for)} ago."
    by = f" It was registered last by {facts.job.registered_by}." if facts.job and facts.job.registered_by else ""
    return f"No living node runs the job.{by}"


def _paused_now(facts: TickFacts) -> str:
    assert facts.job is not None, "a job that is paused is known"
    by = f" by {facts.job.paused_by}" if facts.job.paused_by else ""
    reason = f": {facts.job.pause_reason}" if facts.job.pause_reason else ""
    return f"The job is paused since {_at(facts.job.paused_at)}{by}{reason}."


def _changed(facts: TickFacts) -> list[str]:
    """Say what is known of a schedule that is not what it was."""
    job = facts.job
    if job is None or job.registered_at is None:
        return []
    told: list[str] = []
    if job.disagreeing:
        were = "was" if len(job.disagreeing) == 1 else "were"
        told.append(
            f"{', '.join(job.disagreeing)} {were} started with another schedule; that of {job.registered_by} rules."
        )
    if job.registered_at > facts.tick:
        told.append(
            f"The schedule was registered at {_at(job.registered_at)}, after this instant; it may have differed."
        )
    return told


def _attempts(run: RunGlance) -> list[str]:
    return [f"It took {run.attempt} attempts: see tenure show {run.id}"] if run.attempt > 1 else []


def _by_operators(facts: TickFacts) -> list[str]:
    done = {
        ActionKind.RELEASED: "released the run",
        ActionKind.RETRIED: "asked for another attempt",
        ActionKind.SKIPPED: "gave the tick up",
        ActionKind.TRIGGERED: "asked for the run",
    }
    return [
        f"{action.by or 'Somebody'} {done[action.kind]} at {_at(action.at)}{_reason(action)}."
        for action in facts.actions
        if action.kind in done
    ]


def _who(action: ActionRecord) -> str:
    return (f" by {action.by}" if action.by else "") + _reason(action)


def _reason(action: ActionRecord) -> str:
    return f": {action.reason.rstrip('.')}" if action.reason else ""


def _holder(run: RunGlance) -> str:
    return run.holder or "a NestJS node"


def _error(run: RunGlance) -> str:
    return f": {run.error.rstrip('.')}" if run.error else ""


def _at(instant: datetime | None) -> str:
    """Write an instant in UTC; seconds are enough to find it again, but for those that a millisecond tells apart."""
    if instant is None:
        return "an unknown time"
    utc = instant.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}{f'.{utc.microsecond // 1000:03}' if utc.microsecond >= 1000 else ''} UTC"


def _key(tick: datetime) -> str:
    return tick.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _words(duration: timedelta | None) -> str:
    return "an unknown time" if duration is None else format_duration(duration)
