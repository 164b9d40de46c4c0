"""`tenure release`, `retry`, `skip` and `why`: asked first, never against a rival, and kept with who and why (C5.5)."""

from __future__ import annotations

import getpass
import re
import socket
import subprocess
from datetime import UTC, datetime

import pytest

from tenure import JobAcquireOptions, JobSchedulerService, LostReason
from tests.cli.commands import Tenure
from tests.cli.test_run_signals import on_terminal
from tests.support.rows import execute, row_of
from tests.support.scheduling import CODE, JOBS, MINUTE, TickNode, known_for, options_for, tick_row, won
from tests.support.waiting import eventually

ME = f"{getpass.getuser()}@{socket.gethostname()}"
NOBODY = "00000000-0000-4000-8000-000000000000"
SURE = ("--reason", "because", "--yes")


@pytest.fixture
def node(service: JobSchedulerService) -> TickNode:
    """A node that is alive and has registered the job, every minute."""
    made = TickNode(service)
    made.register(CODE, policy={"kind": "cron"})
    return made


@pytest.fixture
def tick(node: TickNode, database_url: str) -> datetime:
    """The oldest tick that nobody has decided, some minutes ago."""
    execute(database_url, f"UPDATE {JOBS} SET \"fingerprint\" = 'every minute'")
    return known_for(database_url, 10 * MINUTE) + MINUTE


def iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()


def test_a_release_fences_the_holder_and_is_kept(tenure: Tenure, node: TickNode, tick: datetime) -> None:
    """C5.5: who and why are in the run's history; the holder is told."""
    lease = won(node.claim(tick))
    done = tenure("release", str(lease.id), *SURE)
    assert done.code == 0
    assert done.out == f"{CODE} {options_for(tick).run_key}: released by {ME}\n"
    assert "Any node that runs the job may take it up now." in done.err
    assert not node.service.heartbeat(lease)
    assert lease.hold is not None
    assert lease.hold.lost_reason is LostReason.RELEASED
    shown = tenure("show", options_for(tick).lock_key)
    assert re.search(rf"^released +by {re.escape(ME)}, 20\S+ \S+Z \(\S+ ago\): because$", shown.out, re.MULTILINE)
    assert re.search(r"^attempt 1 +node-a, began .* released after \S+$", shown.out, re.MULTILINE)
    again = tenure("release", str(lease.id), *SURE)
    assert (again.code, again.out) == (1, "")
    assert "Nothing was done: nobody holds it, it is released." in again.err


def test_a_retry_makes_a_run_due_again(tenure: Tenure, node: TickNode, tick: datetime, database_url: str) -> None:
    """C10.4: one that used up its attempts; one that has succeeded only by force; one that runs never."""
    lease = won(node.claim(tick))
    assert "holds it. Release it first" in tenure("retry", str(lease.id), *SURE).err
    node.service.fail(lease)
    node.retake(options_for(tick), max_attempts=1)
    done = tenure("retry", options_for(tick).lock_key, *SURE)
    assert (done.code, done.out) == (0, f"{CODE} {options_for(tick).run_key}: due again, asked for by {ME}\n")
    node.service.complete(won(node.retake(options_for(tick))))
    refused = tenure("retry", str(lease.id), *SURE)
    assert (refused.code, "With --force it is done again" in refused.err) == (1, True)
    assert tenure("retry", str(lease.id), *SURE, "--force").code == 0
    assert row_of(database_url, lease.id)["outcome"] == "retried"
    actions = tenure("show", str(lease.id), "--json").json["actions"]
    assert [(each["action"], each["attempt"], each["by"], each["reason"]) for each in actions] == [
        ("retried", 1, ME, "because"),
        ("retried", 2, ME, "because"),
    ]


def test_a_tick_is_skipped(tenure: Tenure, node: TickNode, tick: datetime, database_url: str) -> None:
    """C10.5: one to come by a word; one that has run is left alone, and what is no tick is refused."""
    done = tenure("skip", CODE, "next", *SURE)
    assert (done.code, done.err) == (0, "")
    key = re.match(rf"{CODE} (\S+): skipped by", done.out)
    assert key
    rows = execute(database_url, 'SELECT "outcome", "data" ->> \'by\' FROM "job-scheduler" WHERE "runKey" = %s', key[1])
    assert rows == [("skipped", ME)]
    node.service.complete(won(node.claim(tick)))
    over = tenure("skip", CODE, iso(tick), *SURE)
    assert (over.code, "Nothing was done: the tick is over, it succeeded." in over.err) == (1, True)
    off = tenure("skip", CODE, iso(tick.replace(second=7)), *SURE)
    assert (off.code, "is no tick of 'every minute (UTC)'" in off.err) == (2, True)
    unknown = tenure("skip", "no-such", iso(tick), *SURE)
    assert (unknown.code, "no job no-such was ever registered" in unknown.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["release", NOBODY, *SURE], 1, "There is no run with the id"),
        (["retry", "v2:nothing", *SURE], 1, "There is no run with the key"),
        (["release", NOBODY, "--yes"], 2, "Missing option '--reason'"),
        (["release", NOBODY, "--reason", "r"], 2, "Nobody can be asked here whether it is meant. Give --yes."),
        (["skip", "x", "03:00", *SURE], 2, "'03:00' is no instant"),
        (["why", "x", "tomorrow"], 2, "'tomorrow' is no instant"),
        (["why", "x", "last"], 2, "'last' needs a job with a schedule"),
    ],
)
def test_what_cannot_be_done_is_said(tenure: Tenure, arguments: list[str], code: int, said: str) -> None:
    """C11: 1 for what is not there, 2 for a command line that is wrong."""
    done = tenure(*arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_it_is_asked_first(tenure: Tenure, node: TickNode, tick: datetime, database_url: str) -> None:
    """What is held by whom since when; anything but yes leaves it as it is."""
    lease = won(node.claim(tick))
    for answer, code, status in (b"\n", 1, "RUNNING"), (b"y\n", 0, "FAIL"):
        words = ("release", str(lease.id), "--reason", "it hangs")
        with tenure.start(*words, before=on_terminal(), stdin=subprocess.PIPE) as process:
            assert process.stdin
            assert process.stdout
            shown = b""
            while b"Release it?" not in shown:
                shown += process.stdout.read1()  # type: ignore[attr-defined] # a pipe is a BufferedReader
            process.stdin.write(answer)
            process.stdin.flush()
            eventually(lambda process=process: process.poll() is not None, 20.0)  # type: ignore[misc] # bound now
            assert process.returncode == code
        assert b"its holder node-a" in shown
        assert row_of(database_url, lease.id)["status"] == status


def test_a_run_that_nobody_will_take_up_is_said(
    tenure: Tenure, node: TickNode, tick: datetime, database_url: str
) -> None:
    """C10.6: its job is paused, or no node that runs it is alive."""
    lease = won(node.claim(tick))
    assert tenure("pause", CODE, "--reason", "r").code == 0
    done = tenure("release", str(lease.id), *SURE)
    assert (done.code, "The job is paused: the run waits until it is resumed." in done.err) == (0, True)
    assert tenure("resume", CODE).code == 0
    execute(database_url, 'UPDATE "job-scheduler" SET "retryAt" = clock_timestamp() + INTERVAL \'1 hour\'')
    execute(database_url, 'UPDATE "job-scheduler_nodes" SET "seenAt" = "seenAt" - INTERVAL \'1 hour\'')
    done = tenure("retry", str(lease.id), *SURE)
    assert (done.code, "No living node runs the job: the run waits for one." in done.err) == (0, True)


# Why


def test_why_answers_in_words(tenure: Tenure, node: TickNode, tick: datetime, database_url: str) -> None:
    """C10.5: what happened, what to do, the ticks around it; by instant, by word, by time of day."""
    node.service.complete(won(node.claim(tick)))
    done = tenure("why", CODE, iso(tick))
    assert (done.code, done.err) == (0, "")
    head, _, sentence, *rest = done.out.splitlines()
    assert re.fullmatch(rf"{CODE} 20\S+ \S+Z \(\S+ ago\): succeeded", head)
    assert sentence.startswith("It ran on node-a, began at ")
    assert f"Its run: tenure show {tick_row(database_url, tick)['id']}" in rest
    answer = tenure("why", CODE, f"{tick:%H:%M}", "--json").json
    assert (answer["verdict"], answer["ran"]) == ("succeeded", True)
    assert answer["tick"] == options_for(tick).run_key
    last = tenure("why", CODE, "last", "--json").json
    assert last["verdict"] in ("overdue", "due")
    assert tenure("why", CODE, "next", "--json").json["verdict"] == "in the future"


def test_a_time_of_day_is_that_of_the_jobs_zone(tenure: Tenure, node: TickNode, database_url: str) -> None:
    """C10.2: the last time that its clocks showed so."""
    execute(database_url, f"UPDATE {JOBS} SET \"timezone\" = 'Asia/Kathmandu'")
    answer = tenure("why", CODE, "03:00", "--json").json
    assert answer["tick"][10:] == "T21:15:00.000Z"
    assert answer["tick"] < answer["clock"]


def test_why_of_an_unknown_job_is_exit_1(tenure: Tenure) -> None:
    """And it says so."""
    done = tenure("why", "no-such", "2026-07-20T03:00:00Z")
    assert (done.code, "No job 'no-such' was ever registered here." in done.out) == (1, True)


def test_a_run_that_no_scheduler_knows_is_taken_by_the_next_acquire(
    tenure: Tenure, service: JobSchedulerService
) -> None:
    """C7.3: a retry says who takes it up."""
    options = JobAcquireOptions(code="plain", run_key="k")
    lease = service.acquire(options)
    assert lease.acquired
    service.complete(lease)
    done = tenure("retry", options.lock_key, *SURE, "--force")
    assert (done.code, "The next acquire takes it up." in done.err) == (0, True)
    assert service.acquire(options).acquired
