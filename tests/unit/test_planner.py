"""What a node does next about a job: pure, whatever the schedule, the rules and the clock (C10.2, C10.5, C10.7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tenure.scheduling import EARLY_TOLERANCE, Cron, Every, Job, Outcome
from tenure.scheduling.planner import ON_TIME, ROWS_AT_ONCE, Claim, Decide, Wait, is_late, next_step
from tests.support.schedulers import nothing

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 7, 20, 12, tzinfo=UTC)
US = timedelta(microseconds=1)

SCHEDULES = st.sampled_from(
    [
        Every(SECOND),
        Every(7 * SECOND),
        Every(MINUTE),
        Every(HOUR),
        Cron("*/5 * * * *", timezone="Asia/Ho_Chi_Minh"),
        Cron("30 2 * * *", timezone="Europe/Paris"),
        Cron("0 0 29 2 *"),
    ]
)
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""What is given takes long or short by its size, and by what else this machine does."""
MOST_TICKS = 5_000
SPANS = st.timedeltas(timedelta(0), timedelta(days=2))
STARTS = st.datetimes(datetime(2026, 1, 1), datetime(2028, 12, 31), timezones=st.just(UTC))


def job(**given: Any) -> Job:
    return Job(**{"code": "j", "schedule": Every(HOUR), "callback": nothing, "max_lateness": None, **given})


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    max_lateness = draw(st.none() | st.timedeltas(2 * SECOND, timedelta(days=1)))
    return job(
        schedule=draw(SCHEDULES),
        catch_up=draw(st.sampled_from(["skip", "latest", "all"])),
        catch_up_limit=draw(st.integers(1, 20)),
        max_lateness=max_lateness,
        jitter=draw(st.timedeltas(timedelta(0), SECOND)),
    )


@dataclass
class Told:
    """What a database would hold of one job: each tick's decision, and the watermark."""

    watermark: datetime
    claimed: list[Claim] = field(default_factory=list)
    decided: dict[datetime, str] = field(default_factory=dict)

    def obey(self, step: Claim | Decide) -> None:
        """Do what the statements do: nothing that was decided is decided again, and nothing is passed over."""
        if isinstance(step, Claim):
            if step.tick <= self.watermark or (step.previous is not None and step.previous > self.watermark):
                return
            self.claimed.append(step)
            self._decide(step.tick, "claimed")
        else:
            for tick in step.ticks:
                self._decide(tick, step.outcome.value)

    def _decide(self, tick: datetime, how: str) -> None:
        assert tick > self.watermark, "the watermark never goes back"
        assert tick not in self.decided
        self.watermark, self.decided[tick] = tick, how


def settle(job: Job, told: Told, now: datetime) -> Wait:
    """Go on until nothing is due."""
    while not isinstance(step := next_step(job, told.watermark, now), Wait):
        told.obey(step)
    return step


@UNHURRIED
@given(jobs(), STARTS, SPANS)
def test_every_due_tick_is_decided_once_and_in_order(job: Job, known: datetime, later: timedelta) -> None:
    """C10.5, C10.7: none is left out, none comes twice, none is from before the job was known or still to come."""
    told, now = Told(known), known + later
    due = job.schedule.between(known, now + EARLY_TOLERANCE, 10**6)
    assume(len(due) < MOST_TICKS)
    wait = settle(job, told, now)
    assert list(told.decided) == due
    assert wait.until == job.schedule.next_after(told.watermark)
    assert wait.until is None or wait.until > now + EARLY_TOLERANCE


@UNHURRIED
@given(jobs(), STARTS, st.lists(st.timedeltas(timedelta(0), 3 * HOUR), max_size=8))
def test_it_is_the_same_however_often_a_node_looks(job: Job, known: datetime, pauses: list[timedelta]) -> None:
    """C10.5: over any run of looks each tick has one decision, and the ticks follow each other."""
    told, now = Told(known), known
    assume(len(job.schedule.between(known, known + sum(pauses, MINUTE), MOST_TICKS)) < MOST_TICKS)
    for pause in pauses:
        now += pause
        settle(job, told, now)
    ticks = list(told.decided)
    assert ticks == job.schedule.between(known, now + EARLY_TOLERANCE, 10**6)
    assert all(claim.previous is None or claim.previous < claim.tick for claim in told.claimed)


@UNHURRIED
@given(jobs(), STARTS, st.lists(st.tuples(st.integers(0, 2), st.timedeltas(-MINUTE, HOUR)), max_size=12))
def test_nodes_whose_sight_is_old_never_decide_a_tick_twice(
    job: Job, known: datetime, looks: list[tuple[int, timedelta]]
) -> None:
    """C10.6, C10.7: three nodes, each with a watermark and a clock of its own, under what the database refuses."""
    told, now = Told(known), known
    seen = [known] * 3
    for node, pause in looks:
        now = max(now + pause, known)
        for _ in range(200):
            step = next_step(job, seen[node], now)
            if isinstance(step, Wait):
                break
            # a claim judges by the row's watermark; a decision stands only if nobody has moved it
            if isinstance(step, Claim) or seen[node] == told.watermark:
                told.obey(step)
            assert told.watermark > seen[node], "every refusal tells the node something new"
            seen[node] = told.watermark
    assert list(told.decided) == sorted(told.decided)


@UNHURRIED
@given(jobs(), STARTS, SPANS)
def test_only_the_wanted_ticks_run(job: Job, known: datetime, later: timedelta) -> None:
    """C10.5: at most one for `skip` and `latest`, `catch_up_limit` for `all`, and none that is too late."""
    told, now = Told(known), known + later
    assume(len(job.schedule.between(known, now, MOST_TICKS + 1)) <= MOST_TICKS)
    settle(job, told, now)
    claimed = [claim.tick for claim in told.claimed]
    assert len(claimed) <= (job.catch_up_limit if job.catch_up == "all" else 1)
    assert not any(is_late(job, tick, now) for tick in claimed)
    if claimed:
        assert claimed[-1] == max(told.decided), "the newest one is among them"
        assert claimed == list(told.decided)[-len(claimed) :], "they are the newest ones, oldest first"
    for tick, how in told.decided.items():
        if how != "claimed":
            assert (how == Outcome.TOO_LATE) is is_late(job, tick, now)
    if job.catch_up == "skip":
        assert all(now - tick <= ON_TIME + job.jitter for tick in claimed)


@UNHURRIED
@given(jobs(), STARTS)
def test_a_new_job_never_runs_for_the_past(job: Job, known: datetime) -> None:
    """C10.5: its watermark is the moment it was registered; a tick at that very instant is of the past, too."""
    step = next_step(job, known, known)
    if isinstance(step, Wait):
        assert step.until is not None
        assert step.until > known
    else:
        assert isinstance(step, Claim)
        assert known < step.tick <= known + EARLY_TOLERANCE, "a tick that is as good as due"


def test_a_tick_is_due_from_250_ms_before_it_on() -> None:
    """C10.2: firing early, on time or late is the same tick."""
    due = Claim(tick=NOON, previous=NOON - HOUR, catch_up=False)
    assert next_step(job(), NOON - HOUR, NOON - EARLY_TOLERANCE - US) == Wait(until=NOON)
    for now in (NOON - EARLY_TOLERANCE, NOON, NOON + ON_TIME):
        assert next_step(job(), NOON - HOUR, now) == due


@pytest.mark.parametrize("jitter", [timedelta(0), 10 * MINUTE])
def test_a_tick_is_missed_once_it_is_a_minute_late_beyond_its_jitter(jitter: timedelta) -> None:
    """C10.5: a node that was about to start it by jitter has not missed it."""
    skipping = job(catch_up="skip", jitter=jitter)
    on_time = NOON + ON_TIME + jitter
    assert next_step(skipping, NOON - HOUR, on_time) == Claim(tick=NOON, previous=NOON - HOUR, catch_up=False)
    missed = Decide(outcome=Outcome.SKIPPED, ticks=(NOON,))
    assert next_step(skipping, NOON - HOUR, on_time + US) == missed
    latest = next_step(job(jitter=jitter), NOON - HOUR, on_time + US)
    assert latest == Claim(tick=NOON, previous=NOON - HOUR, catch_up=True)


def test_the_latest_runs_and_those_before_it_say_that_they_were_skipped() -> None:
    """C10.5: `latest`."""
    now = NOON + 30 * MINUTE
    step = next_step(job(), NOON - 5 * HOUR, now)
    assert step == Decide(outcome=Outcome.SKIPPED, ticks=tuple(NOON - n * HOUR for n in (4, 3, 2, 1)))
    assert next_step(job(), NOON - HOUR, now) == Claim(tick=NOON, previous=NOON - HOUR, catch_up=True)


def test_all_run_oldest_first_up_to_the_cap() -> None:
    """C10.5: `all`: those beyond the cap are skipped, and the oldest of the rest is the first."""
    capped, now = job(catch_up="all", catch_up_limit=3), NOON + 30 * MINUTE
    step = next_step(capped, NOON - 5 * HOUR, now)
    assert step == Decide(outcome=Outcome.SKIPPED, ticks=(NOON - 4 * HOUR, NOON - 3 * HOUR))
    for n in (2, 1, 0):
        tick = NOON - n * HOUR
        assert next_step(capped, tick - HOUR, now) == Claim(
            tick=tick, previous=tick - HOUR, catch_up=n > 0 or now > tick
        )


def test_what_is_too_late_says_so_and_what_is_merely_skipped_says_that() -> None:
    """C10.5: the oldest are too late, the others are skipped, the newest runs."""
    bounded, now = job(max_lateness=3 * HOUR), NOON + 30 * MINUTE
    first = next_step(bounded, NOON - 6 * HOUR, now)
    assert first == Decide(outcome=Outcome.TOO_LATE, ticks=tuple(NOON - n * HOUR for n in (5, 4, 3)))
    second = next_step(bounded, NOON - 3 * HOUR, now)
    assert second == Decide(outcome=Outcome.SKIPPED, ticks=(NOON - 2 * HOUR, NOON - HOUR))
    assert is_late(bounded, now - 3 * HOUR - US, now)
    assert not is_late(bounded, now - 3 * HOUR, now)
    assert next_step(job(max_lateness=29 * MINUTE), NOON - HOUR, now) == Decide(outcome=Outcome.TOO_LATE, ticks=(NOON,))


def test_a_long_downtime_is_decided_in_parts() -> None:
    """C10.5: a thousand rows in one go at most; the rest comes with the next question."""
    seconds = job(schedule=Every(SECOND), catch_up="latest")
    step = next_step(seconds, NOON - 2_500 * SECOND, NOON)
    assert isinstance(step, Decide)
    assert len(step.ticks) == ROWS_AT_ONCE
    assert step.ticks[0] == NOON - 2_499 * SECOND


def test_a_schedule_that_is_over_waits_for_nothing() -> None:
    """C10.3: at the end of the calendar there is no next tick."""
    last = datetime(9999, 12, 24, tzinfo=UTC)
    assert next_step(job(schedule=Every(timedelta(days=366))), last, last) == Wait(until=None)
