"""What a job may be told, what it refuses, and what it says (C10.5, C11)."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import JobSchedulerService
from tenure.errors import (
    InvalidJobIdentityOptionsError,
    InvalidJobLeaseOptionsError,
    InvalidJobOptionsError,
    InvalidScheduleError,
)
from tenure.scheduling import Cron, Every, Job, JobRun, Retention, Retry, Scheduler
from tests.support.schedulers import nothing

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
EVERY_MINUTE = Every(MINUTE)


def job(**given: Any) -> Job:
    return Job(**{"code": "sync-orders", "schedule": EVERY_MINUTE, "callback": nothing, **given})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a schedule in words": (
        {"schedule": "* * * * *"},
        "schedule must be a Cron or an Every; '* * * * *' was given.",
    ),
    "no callback": ({"callback": None}, "callback must be callable; None was given."),
    "a number of retries": ({"retry": 3}, "retry must be a Retry; 3 was given."),
    "an unknown catch-up": (
        {"catch_up": "some"},
        "catch_up must be one of 'skip', 'latest', 'all'; 'some' was given.",
    ),
    "an unknown overlap": (
        {"overlap": True},
        "overlap must be one of 'allow', 'skip', 'queue'; True was given.",
    ),
    "no catch-up at all": ({"catch_up_limit": 0}, "catch_up_limit must be an int of 1 to 10,000; 0 was given."),
    "a flag for a count": ({"catch_up_limit": True}, "catch_up_limit must be an int of 1 to 10,000; True was given."),
    "a lease of seconds": ({"lease": 60}, "lease must be a timedelta; 60 was given."),
    "no lease": ({"lease": 0 * SECOND}, "lease must be at least 1 millisecond; 0:00:00 was given."),
    "a jitter that is negative": ({"jitter": -SECOND}, "jitter must be at least 0; -1 day, 23:59:59 was given."),
    "no time at all": ({"timeout": 0 * SECOND}, "timeout must be at least 1 millisecond; 0:00:00 was given."),
    "less than a millisecond": (
        {"max_lateness": timedelta(microseconds=999)},
        "max_lateness must be at least 1 millisecond; 0:00:00.000999 was given.",
    ),
    "more than the calendar has": (
        {"max_lateness": timedelta.max},
        f"max_lateness must be at most 100 years; {timedelta.max} was given.",
    ),
    "a jitter that makes ticks too late": (
        {"jitter": MINUTE + SECOND, "max_lateness": MINUTE},
        "jitter must not be longer than max_lateness (0:01:00), or ticks are too late by chance; 0:01:01 was given.",
    ),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
def test_a_bad_rule_is_refused_and_the_message_names_field_and_limit(given: dict[str, Any], said: str) -> None:
    """C11: when the job is built, so that nothing is registered of it."""
    with pytest.raises(InvalidJobOptionsError) as caught:
        job(**given)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("given", "kind", "field"),
    [
        ({"code": ""}, InvalidJobIdentityOptionsError, "code"),
        ({"code": "x" * 65}, InvalidJobIdentityOptionsError, "code"),
        ({"name": "x" * 257}, InvalidJobIdentityOptionsError, "name"),
        ({"lease": timedelta(milliseconds=2)}, InvalidJobLeaseOptionsError, "lease_ms"),
        ({"lease": SECOND, "heartbeat": SECOND / 2}, InvalidJobLeaseOptionsError, "heartbeat_ms"),
    ],
)
def test_identity_and_lease_are_checked_as_those_of_any_run(
    given: dict[str, Any], kind: type[Exception], field: str
) -> None:
    """C2.2, C2.6, C3.1, C3.2."""
    with pytest.raises(kind, match=field):
        job(**given)


def test_a_code_is_known_as_it_is_stored() -> None:
    """C2.2: trimmed, so that two spellings of one code cannot both be registered."""
    assert job(code=" sync-orders\n").code == "sync-orders"


def test_a_job_is_a_frozen_value() -> None:
    """C10.5: what was registered is what runs."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        job().overlap = "allow"  # type: ignore[misc] # this is what must not work


def test_a_lease_is_renewed_each_third_of_it_unless_told_otherwise() -> None:
    """C3.2: `timedelta(0)` never renews."""
    assert job(lease=30 * SECOND).options("r").heartbeat_ms == 10_000
    assert job(lease=30 * SECOND, heartbeat=SECOND).options("r").heartbeat_ms == 1_000
    assert job(lease=30 * SECOND, heartbeat=0 * SECOND).options("r").heartbeat_ms == 0


def test_what_is_registered_tells_people_the_rules() -> None:
    """C10.5: the schedule, its zone, and each rule that other nodes may differ in."""
    told = job(schedule=Cron("0 3 * * *", timezone="Europe/Paris"), overlap="queue", max_lateness=None).registration()
    assert (told.code, told.schedule, told.timezone) == ("sync-orders", "0 3 * * *", "Europe/Paris")
    assert told.fingerprint == Cron("0 3 * * *", timezone="Europe/Paris").fingerprint
    assert told.policy["overlap"] == "queue"
    assert told.policy["max_lateness_ms"] is None
    assert told.policy["lease_ms"] == 900_000


class TestRetry:
    """C10.5."""

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"max_attempts": 0}, "max_attempts must be an int of 1 to 1,000; 0 was given."),
            ({"max_attempts": 1_001}, "max_attempts must be an int of 1 to 1,000; 1001 was given."),
            ({"max_attempts": 2.0}, "max_attempts must be an int of 1 to 1,000; 2.0 was given."),
            ({"first": 10}, "first must be a timedelta; 10 was given."),
            ({"first": -SECOND}, "first must be at least 0; -1 day, 23:59:59 was given."),
            ({"most": timedelta(days=36_526)}, "most must be at most 100 years; 36526 days, 0:00:00 was given."),
        ],
    )
    def test_a_bad_one_is_refused(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidJobOptionsError) as caught:
            Retry(**given)
        assert str(caught.value) == said

    @given(st.integers(1, 1_000), st.floats(0, 1, exclude_max=True))
    def test_the_pause_doubles_up_to_the_longest_one_less_at_most_half(self, attempt: int, spread: float) -> None:
        retry = Retry(first=10 * SECOND, most=10 * MINUTE)
        full = min(10 * SECOND * 2 ** min(attempt - 1, 10), 10 * MINUTE)
        assert full / 2 <= retry.delay(attempt, spread) <= full

    @given(st.integers(0, 1_000), st.floats(0, 1, exclude_max=True))
    def test_no_pause_is_no_pause(self, attempt: int, spread: float) -> None:
        assert Retry(first=timedelta(0)).delay(attempt, spread) == timedelta(0)


@pytest.mark.parametrize("field", ["keep", "keep_failed"])
@pytest.mark.parametrize("value", [timedelta(minutes=59), 90, None])
def test_runs_are_kept_for_an_hour_at_least(field: str, value: Any) -> None:
    """C10.7."""
    with pytest.raises(InvalidJobOptionsError, match=f"^{field} must be a timedelta of at least 1 hour"):
        Retention(**{field: value})


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"poll": timedelta(milliseconds=49)}, "poll must be 50 milliseconds to 1 hour; 0:00:00.049000 was given."),
    ({"poll": timedelta(hours=2)}, "poll must be 50 milliseconds to 1 hour; 2:00:00 was given."),
    ({"max_concurrent_runs": 0}, "max_concurrent_runs must be an int of at least 1."),
    ({"max_concurrent_runs": 1.5}, "max_concurrent_runs must be an int of at least 1."),
    ({"drain": -SECOND}, "drain must not be negative; -1 day, 23:59:59 was given."),
]


class TestScheduler:
    """C11: settings and registrations are refused before anything is sent; the service connects to nothing here."""

    @pytest.fixture
    def service(self) -> JobSchedulerService:
        return JobSchedulerService("postgresql://nobody@127.0.0.1:1/none")

    @pytest.mark.parametrize(("given", "said"), SETTINGS)
    def test_a_bad_setting_is_refused(self, service: JobSchedulerService, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidJobOptionsError) as caught:
            Scheduler(service, **given)
        assert str(caught.value) == said

    def test_a_code_is_registered_once(self, service: JobSchedulerService) -> None:
        scheduler = Scheduler(service, retention=None)
        scheduler.job("a", schedule=EVERY_MINUTE)(nothing)
        with pytest.raises(InvalidJobOptionsError, match="'a' is registered already"):
            scheduler.job(" a ", schedule=EVERY_MINUTE)(nothing)
        scheduler.initial("seed")(nothing)
        with pytest.raises(InvalidJobOptionsError, match="'seed' is registered already"):
            scheduler.initial("seed")(nothing)
        assert [each.code for each in scheduler.jobs] == ["a"]

    def test_a_coroutine_function_is_for_the_other_scheduler(self, service: JobSchedulerService) -> None:
        async def awaited(run: JobRun) -> None:
            """Do nothing."""

        with pytest.raises(TypeError, match="use AsyncScheduler for the other kind"):
            Scheduler(service).job("a", schedule=EVERY_MINUTE)(awaited)

    def test_a_bad_schedule_is_refused_where_it_is_written(self) -> None:
        with pytest.raises(InvalidScheduleError, match="hour"):
            job(schedule=Cron("0 25 * * *"))

    def test_it_is_not_healthy_before_it_has_started(self, service: JobSchedulerService) -> None:
        assert not Scheduler(service).healthy()
