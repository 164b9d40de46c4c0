"""`tenure status`: one screen, an exit code for monitors, live, and as JSON."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from datetime import timedelta

import pytest

from tenure import JobAcquired, JobAcquireOptions, JobSchedulerService
from tests.cli.commands import Tenure, finished
from tests.cli.test_run_signals import on_terminal
from tests.support.rows import TABLE, execute
from tests.support.scheduling import CODE, JOBS, MINUTE, TickNode, known_for, options_for, won
from tests.support.waiting import eventually

HOSTILE = "\x1b[2J[red]x[/red]"


@pytest.fixture
def node(service: JobSchedulerService) -> TickNode:
    """A node that is alive and has registered the job, every minute."""
    made = TickNode(service)
    made.register(CODE, policy={"kind": "cron"})
    return made


def held(service: JobSchedulerService, code: str = "import") -> JobAcquired:
    lease = service.acquire(JobAcquireOptions(code=code, run_key="k", lease_ms=60_000))
    assert isinstance(lease, JobAcquired)
    return lease


def test_an_empty_database_says_what_comes_first(tenure: Tenure) -> None:
    """Nothing to see is nothing to do."""
    done = tenure("status")
    assert (done.code, done.err) == (0, "")
    assert "No job was registered yet" in done.out


@pytest.mark.usefixtures("node")
def test_all_is_in_one_screen(tenure: Tenure, service: JobSchedulerService) -> None:
    """Jobs, leases and nodes, by the database's clock; exit 0 where nothing has to be done."""
    lease = held(service)
    service.checkpoint(lease, {"done": 3, "of": 10})
    done = tenure("status")
    assert done.code == 0
    head, *_ = done.out.splitlines()
    assert re.match(r"20\S+ \S+Z by the database's clock: 2 ok; 1 running; 1 of 1 node alive$", head)
    assert re.search(rf"^ok +{CODE} +(20\S+ )?\d\d:\d\d:00Z \(in \S+\) ", done.out, re.MULTILINE)
    assert re.search(rf"^import +k +1 +node-a +\S+Z \(\S+ ago\) +\S+ +3/10 +{lease.id}$", done.out, re.MULTILINE)
    assert re.search(r"^node-a +yes +\S+ ago ", done.out, re.MULTILINE)
    assert str(lease.owner_token) not in done.out


def test_what_is_overdue_or_exhausted_is_exit_code_2(tenure: Tenure, node: TickNode, database_url: str) -> None:
    """For monitors; the worst comes first, and says since when."""
    node.register(CODE, "spent", policy={"kind": "cron"})
    tick = known_for(database_url, 10 * MINUTE) + MINUTE
    done = tenure("status")
    assert done.code == 2
    assert re.search(rf"^overdue +{CODE} .* overdue since \S+Z", done.out, re.MULTILINE)
    execute(database_url, f'UPDATE {JOBS} SET "watermark" = clock_timestamp()')
    assert tenure("status", "--json").code == 0
    execute(database_url, f"UPDATE {JOBS} SET \"watermark\" = clock_timestamp() - INTERVAL '10 min'")
    node.service.fail(won(node.claim(tick, "spent")), {"error": "OSError: no route"})
    node.retake(options_for(tick, "spent"), max_attempts=1)
    execute(database_url, f'UPDATE {JOBS} SET "watermark" = clock_timestamp()')
    done = tenure("status", "--json")
    assert done.code == 2
    health = {job["code"]: (job["health"], job["exhausted"]) for job in done.json["jobs"]}
    assert health == {CODE: ("ok", 0), "spent": ("exhausted", 1)}
    assert done.json["needs_attention"] is True
    (spent,) = (job for job in done.json["jobs"] if job["code"] == "spent")
    assert (spent["last"]["state"], spent["last"]["error"]) == ("exhausted", "OSError: no route")


def test_paused_and_orphaned_jobs_say_so(tenure: Tenure, node: TickNode, database_url: str) -> None:
    """By whom and why; a silent node is not alive."""
    node.register(CODE, "second", policy={"kind": "cron"})
    assert tenure("pause", CODE, "--reason", "the disk is full").code == 0
    execute(database_url, 'UPDATE "job-scheduler_nodes" SET "seenAt" = "seenAt" - INTERVAL \'1 hour\'')
    out = tenure("status").out
    assert re.search(rf"^paused +{CODE} .* paused since .* by \S+: the disk is full", out, re.MULTILINE)
    assert re.search(r"^orphaned +second .* orphaned: no living node runs it", out, re.MULTILINE)
    assert re.search(r"^node-a +no +1h\S* ago ", out, re.MULTILINE)


def test_watching_goes_on_until_it_is_interrupted(
    tenure: Tenure, service: JobSchedulerService, database_url: str
) -> None:
    """One JSON object a line; what fails meanwhile is said, and the exit code is that of the last look."""
    with tenure.start("status", "--watch", "--json", "--interval", "200ms") as process:
        out, err = process.stdout, process.stderr
        assert out
        assert err
        assert json.loads(out.readline())["leases"] == []
        held(service)
        eventually(lambda: json.loads(out.readline())["leases"])
        execute(database_url, f'ALTER TABLE {TABLE} RENAME TO "away"')
        assert b"tenure: " in err.readline()
        execute(database_url, 'ALTER TABLE "public"."away" RENAME TO "job-scheduler"')
        eventually(lambda: json.loads(out.readline())["leases"])
        process.send_signal(signal.SIGINT)
        assert finished(process).code == 0


def test_a_terminal_shows_colours_and_nothing_harmful(database_url: str, service: JobSchedulerService) -> None:
    """C11: NO_COLOR is respected; a name is text whatever is in it."""
    held(service, HOSTILE)
    execute(database_url, f'UPDATE {TABLE} SET "owner" = %s', HOSTILE)
    for more, coloured in ({}, True), ({"NO_COLOR": "1"}, False):
        wide = Tenure(database_url, {"COLUMNS": "300", "TERM": "xterm-256color", **more})
        with wide.start("status", before=on_terminal(), stdin=subprocess.PIPE) as process:
            done = finished(process)
        assert done.code == 0
        assert r"\x1b[2J[red]x[/red]" in done.out
        assert "\x1b[2J" not in done.out
        assert ("\x1b[32m" in done.out) is coloured


def test_an_interval_has_a_floor(tenure: Tenure) -> None:
    """C11: the limit is said."""
    done = tenure("status", "--watch", "--interval", "1ms")
    assert (done.code, "it must be 200ms or more" in done.err) == (2, True)


def test_json_has_stable_keys(tenure: Tenure, node: TickNode, database_url: str) -> None:
    """Instants in ISO 8601 UTC, durations in ms; no secret among them."""
    tick = known_for(database_url, timedelta(minutes=2)) + MINUTE
    lease = won(node.claim(tick))
    seen = tenure("status", "--json").json
    assert list(seen) == ["clock", "needs_attention", "truncated", "jobs", "leases", "nodes"]
    (job,) = seen["jobs"]
    assert (job["code"], job["words"], job["nodes"]) == (CODE, "every minute (UTC)", ["node-a"])
    assert "held by node-a" in tenure("status").out
    (running,) = seen["leases"]
    assert (running["id"], running["holder"], running["done"]) == (str(lease.id), "node-a", None)
    assert 0 < running["lease_left_ms"] <= 60_000
    assert job["running"][0]["id"] == str(lease.id)
    assert str(lease.owner_token) not in json.dumps(seen)
