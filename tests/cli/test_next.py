"""`tenure next`: when jobs are due, in which clocks, and what stands in the way (C10.1, C10.2)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from tenure import JobSchedulerService
from tests.cli.commands import Tenure
from tests.support.rows import execute
from tests.support.scheduling import CODE, JOBS, TickNode

CRON = {"kind": "cron"}


def test_an_expression_is_tried_out_without_a_database() -> None:
    """Its words, then each tick in UTC, in the schedule's zone, here, and how long until."""
    tenure = Tenure(None, {"TZ": "Asia/Tokyo"})
    done = tenure("next", "--cron", "30 6 * * *", "--timezone", "Asia/Kolkata", "-n", "3")
    assert (done.code, done.err) == (0, "")
    words, titles, *rows = done.out.splitlines()
    assert "Asia/Kolkata" in words
    assert titles.split() == ["UTC", "ZONE", "HERE", "IN"]
    assert len(rows) == 3
    for row in rows:
        assert re.match(
            r"\w{3} \d{4}-\d\d-\d\d 01:00:00Z  \w{3} \d{4}-\d\d-\d\d 06:30:00\+0530  \w{3} \S+ 10:00:00\+0900  \S+", row
        )


def test_json_has_the_same_in_numbers() -> None:
    """One object, whose ticks follow one another."""
    [told] = Tenure(None)("next", "--every", "1h", "--json", "-n", "2").json
    assert (told["kind"], told["timezone"], told["problem"], told["code"]) == ("every", "UTC", None, None)
    first, second = (datetime.fromisoformat(tick["utc"]) for tick in told["ticks"])
    assert second - first == timedelta(hours=1)
    assert first.minute == first.second == 0
    assert 0 <= told["ticks"][0]["in_ms"] <= 3_600_000
    assert told["ticks"][0]["zone"].endswith("+00:00")


def test_every_job_has_a_line_in_the_order_of_time(tenure: Tenure, service: JobSchedulerService) -> None:
    """C10.5: paused and orphaned jobs say so there."""
    node = TickNode(service)
    node.register("minutely", "noon", "old", policy=CRON)
    url = str(tenure.url)
    execute(url, f"UPDATE {JOBS} SET \"schedule\" = '0 12 * * *' WHERE \"code\" = 'noon'")
    execute(url, f"UPDATE {JOBS} SET \"schedule\" = 'not a schedule' WHERE \"code\" = 'old'")
    assert tenure("pause", "noon", "--reason", "a holiday").code == 0
    titles, *rows = tenure("next").out.splitlines()
    assert titles.split() == ["CODE", "UTC", "ZONE", "HERE", "IN", "NOTE"]
    assert [row.split()[0] for row in rows] == ["minutely", "noon", "old"]
    assert re.search(r"paused since .* by .*: a holiday", rows[1])
    execute(url, 'UPDATE "job-scheduler_nodes" SET "seenAt" = "seenAt" - interval \'1 hour\'')
    assert "orphaned: no node runs it" in tenure("next", "minutely").out
    [told] = tenure("next", "old", "--json").json
    assert (told["ticks"], bool(told["problem"])) == ([], True)


def test_what_is_decided_does_not_come_again(tenure: Tenure, service: JobSchedulerService) -> None:
    """C10.2: a tick that was claimed within the early tolerance is not the next one."""
    TickNode(service).register(CODE, policy=CRON)
    coming = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=5)
    execute(str(tenure.url), f'UPDATE {JOBS} SET "watermark" = %s', coming)
    [told] = tenure("next", CODE, "--json", "-n", "1").json
    assert datetime.fromisoformat(told["ticks"][0]["utc"]) == coming + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["no-such"], 1, "There is no job no-such. None was registered yet"),
        (["x", "--cron", "* * * * *"], 2, "Give a CODE, or a schedule to try out, not both."),
        (["-n", "0"], 2, "-n"),
        (["--cron", "0 0 31 2 *"], 2, "the job would never run"),
        (["--cron", "x * * * *"], 2, "minute"),
    ],
)
def test_what_is_not_there_is_said(tenure: Tenure, arguments: list[str], code: int, said: str) -> None:
    """C11: with the exit code for it."""
    done = tenure("next", *arguments)
    assert done.code == code
    assert said in done.out + done.err


def test_without_any_job(tenure: Tenure) -> None:
    """It says how a job comes to be known."""
    assert tenure("next").out == "No job was registered yet: a scheduler does that when it starts.\n"
    assert tenure("next", "--json").json == []
