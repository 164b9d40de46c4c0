"""`tenure timeline`, `doctor` and `completion`, and that each verb has its help."""

from __future__ import annotations

import re
import subprocess
from datetime import datetime, timedelta

import pytest

from tenure import JobSchedulerService
from tests.cli.commands import Tenure, finished
from tests.cli.test_run_signals import on_terminal
from tests.support.many_runs import fill
from tests.support.rows import TABLE, execute
from tests.support.scheduling import CODE, MINUTE, TickNode, known_for, options_for, won


@pytest.fixture
def ticks(service: JobSchedulerService, database_url: str) -> list[datetime]:
    """Three ticks: one that succeeded after 30 s, one that failed, one under way; and a job that did not run."""
    node = TickNode(service)
    node.register(CODE, "other", policy={"kind": "cron"})
    first = known_for(database_url, 10 * MINUTE) + MINUTE
    found = [first + n * MINUTE for n in range(3)]
    leases = [won(node.claim(tick)) for tick in found]
    service.complete(leases[0])
    service.fail(leases[1])
    late = '"startedAt" = %s, "finishedAt" = %s'
    for tick, lease in zip(found, leases, strict=True):
        ended = None if tick == found[2] else tick + timedelta(seconds=30)
        execute(database_url, f'UPDATE {TABLE} SET {late} WHERE "id" = %s', tick, ended, lease.id)
    known_for(database_url, 5 * MINUTE, "other")
    return found


def test_a_timeline_has_a_line_for_each_job(tenure: Tenure, ticks: list[datetime]) -> None:
    """Each run from its beginning to its end, in the mark of its state; exact in JSON."""
    wide = Tenure(tenure.url, {"COLUMNS": "150"})
    done = wide("timeline", "--since", "20m")
    assert done.code == 0
    axis, line, *_ = done.out.splitlines()
    assert re.fullmatch(r" +(\|\d\d:\d\d +)+\|\d\d:\d\d", axis)
    name, drawn = line.split("  ")
    assert (name, re.sub(r"(.)\1*", r"\1", drawn)) == (CODE, ".#.!.>")
    assert re.fullmatch(
        r" +(\|\d\d:\d\d:\d\d +)+\|\d\d:\d\d:\d\d", wide("timeline", "--since", "10m").out.splitlines()[0]
    )
    seen = tenure("timeline", "--since", "20m", "--json").json
    assert [(run["state"], run["run_key"]) for run in seen["runs"]] == [
        (state, options_for(tick).run_key)
        for state, tick in zip(("succeeded", "failed", "running"), ticks, strict=True)
    ]


def test_a_timeline_of_one_job_has_a_line_for_each_run(tenure: Tenure, ticks: list[datetime]) -> None:
    """With how it ended, how long it took, and where."""
    lines = tenure("timeline", CODE).out.splitlines()
    assert [line[:14] for line in lines[1:4]] == [f"{tick:%m-%d %H:%M:%S}" for tick in ticks]
    assert lines[1].endswith("  succeeded, 30s, node-a")
    assert lines[2].endswith("  failed, 30s, node-a")
    assert re.search(r">  running, \d\S*, node-a$", lines[3])
    cut = tenure("timeline", CODE, "--limit", "1")
    assert cut.out.splitlines()[-1] == "There are more: the newest are shown. Give a later --since."


@pytest.mark.usefixtures("ticks")
def test_a_timeline_is_coloured_unless_that_is_not_wanted(database_url: str) -> None:
    """The marks differ in shape, too; NO_COLOR is respected."""
    for more, coloured in ({}, True), ({"NO_COLOR": "1"}, False):
        wide = Tenure(database_url, {"COLUMNS": "100", "TERM": "xterm-256color", **more})
        with wide.start("timeline", "--since", "20m", before=on_terminal(), stdin=subprocess.PIPE) as process:
            done = finished(process)
        assert ("\x1b[32m#" in done.out) is coloured
        assert "# succeeded" in done.out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--since", "1m"], 0, "No run began in this span"),
        (["--since", "2026-07-20T03:00:00Z", "--until", "2026-07-20T02:00:00Z"], 2, "earlier than the end"),
        (["--since", "yesterday"], 2, "'yesterday' is no instant"),
    ],
)
def test_a_span_that_is_none_is_refused(tenure: Tenure, options: list[str], code: int, said: str) -> None:
    """C11: and one in which nothing was is not."""
    done = tenure("timeline", *options)
    assert done.code == code
    assert said in done.out + done.err


def test_the_doctor_says_what_why_and_the_mend(tenure: Tenure) -> None:
    """The tests' server is without durability, which is bad: exit 1."""
    done = tenure("doctor")
    assert (done.code, done.err) == (1, "")
    assert re.search(
        r"^bad   durability: fsync is off\n      \S.*\n(      .*\n)*      Mend: Set fsync = on", done.out, re.M
    )
    assert re.search(r"^ok    schema: as this version needs it$", done.out, re.M)
    assert re.search(r"^1 bad, \d+ to look at, \d+ well$", done.out, re.M)
    found = tenure("doctor", "--json").json
    assert {"level", "subject", "found", "why", "mend"} == set(found[0])
    assert [each["subject"] for each in found if each["level"] == "bad"] == ["durability"]


def test_a_database_that_is_away_is_no_finding() -> None:
    """It cannot be examined: 69, as with any verb."""
    away = Tenure("postgresql://nobody:secret@127.0.0.1:1/none")("doctor")
    assert (away.code, away.out) == (69, "")
    assert "secret" not in away.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_verbs_and_options(shell: str) -> None:
    """By a script that asks no database."""
    done = Tenure(None)("completion", shell)
    assert (done.code, "_TENURE_COMPLETE" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("words", "offered"), [("tenure sta", {"status"}), ("tenure why --emb", {"--embedded"})], ids=str
)
def test_what_a_shell_asks_is_answered(words: str, offered: set[str]) -> None:
    """As the script for bash asks it."""
    assert completed(None, words) == offered


def completed(url: str | None, words: str) -> set[str]:
    asked = {"_TENURE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = Tenure(url, asked)()
    assert done.err == ""
    return {line.partition(",")[2] for line in done.out.split()}


def test_a_shell_completes_the_codes_of_jobs(database_url: str) -> None:
    """Those that a scheduler has registered; of a database that is away, or of no table's name, none, and no error."""
    fill(database_url, runs=40, jobs=20)
    some = {f"job-001{n}" for n in range(10)}
    away = "postgresql://nobody@127.0.0.1:1/none"
    assert completed(database_url, "tenure why job-001") == some
    assert completed(database_url, "tenure ls --code job-0007") == {"job-0007"}
    assert completed(away, f"tenure why --database-url {database_url} job-001") == some
    assert completed(database_url, "tenure why --table other job") == set()
    assert completed(database_url, f"tenure why --table {'x' * 99} job") == set()
    assert completed(away, "tenure why job") == set()
