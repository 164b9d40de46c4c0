"""`tenure ls` and `tenure show`: runs as they stand, for people and for programs (C11)."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tenure import JobAcquired, JobAcquireOptions, JobSchedulerService, JobSchedulerStatus, JobSchedulerType, RunRecord
from tenure.cli.output import run_as_json, when
from tests.cli.commands import Tenure, finished, owner_token
from tests.cli.test_run_signals import on_terminal
from tests.support.rows import TABLE, age, execute
from tests.support.wrong_clocks import clock_off_by, needs_wrong_clocks

HOSTILE = "\x1b[2J[red]x[/red]\u202e"
HARMLESS = r"\x1b[2J[red]x[/red]\u202e"
KEYS = [
    *("id", "idempotency_key", "type", "code", "run_key", "name", "status", "attempt", "fencing_token", "holder"),
    *("lease_ms", "lease_left_ms", "created_at", "started_at", "modified_at", "finished_at", "data"),
    *("checkpoint", "checkpointed_at", "scheduled_at", "outcome", "retry_at"),
]
INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def acquired(service: JobSchedulerService, code: str, run_key: str = "k", name: str = "a name") -> JobAcquired:
    """Begin a run."""
    won = service.acquire(JobAcquireOptions(code=code, run_key=run_key, name=name))
    assert won.acquired
    return won


@pytest.fixture
def three(service: JobSchedulerService) -> list[JobAcquired]:
    """One run that is done, one that failed, one that runs, in this order."""
    runs = [acquired(service, code) for code in ("load", "load-more", "report")]
    service.complete(runs[0], {"rows": 5})
    service.fail(runs[1])
    return runs


@pytest.mark.usefixtures("three")
def test_ls_in_a_pipe_prints_one_aligned_line_a_run(tenure: Tenure) -> None:
    """Newest first, nothing cut."""
    done = tenure("ls")
    assert (done.code, done.err) == (0, "")
    header, *lines = done.out.splitlines()
    assert header.split() == ["STATUS", "CODE", "RUN", "KEY", "ATTEMPT", "HOLDER", "BEGAN", "THEN", "ID"]
    assert [line.split()[:2] for line in lines] == [["RUNNING", "report"], ["FAIL", "load-more"], ["SUCCESS", "load"]]
    assert {line.index("k  ") for line in lines} == {header.index("RUN KEY")}
    assert re.search(r" 20\S+ \S+Z \(\S+ ago\) +14m\d\ds left +[0-9a-f-]{36}$", lines[0])
    assert re.search(r" ago\)  ended after \S+ +[0-9a-f-]{36}$", lines[1])


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (["--code", "load"], ["load"]),
        (["--status", "RUNNING"], ["report"]),
        (["--status", "fail"], ["load-more"]),
        (["--limit", "2"], ["report", "load-more"]),
        (["--code", "load", "--status", "FAIL"], []),
        (["--code", "none"], []),
    ],
)
def test_ls_filters(tenure: Tenure, options: list[str], codes: list[str]) -> None:
    """By job, by status, by number."""
    assert [run["code"] for run in tenure("ls", "--json", *options).json] == codes


def test_json_has_stable_keys_and_utc_instants(tenure: Tenure, three: list[JobAcquired]) -> None:
    """The same object in `ls` and in `show`, by id and by key."""
    listed = tenure("ls", "--json").json[2]
    assert list(listed) == KEYS
    done = three[0]
    for name in str(done.id), done.idempotency_key:
        shown = tenure("show", name, "--json").json
        assert {key: value for key, value in shown.items() if key in KEYS} == listed
        assert (shown["state"], len(shown["attempts"]), shown["actions"]) == ("succeeded", 1, [])
    assert (listed["id"], listed["status"], listed["data"]) == (str(done.id), "SUCCESS", {"rows": 5})
    assert all(re.fullmatch(INSTANT, listed[key]) for key in KEYS if key.endswith("_at") and listed[key])
    running = tenure("ls", "--json").json[0]
    assert running["finished_at"] is None
    assert 800_000 < running["lease_left_ms"] <= 900_000


def test_show_prints_every_field(tenure: Tenure, three: list[JobAcquired], database_url: str) -> None:
    """With instants in UTC, and how far they are from now, by the database's clock."""
    age(database_url, three[2].id, timedelta(minutes=20))
    shown = tenure("show", three[2].idempotency_key)
    fields = dict(re.split(r" {2,}", line, maxsplit=1) for line in shown.out.splitlines())
    assert fields["id"] == str(three[2].id)
    assert fields["lease"] == "15m"
    assert re.fullmatch(r"expired 5m\d*s? ago", fields["lease left"])
    assert re.fullmatch(r"20\S+ \S+Z \(20m\d*s? ago\)", fields["last sign"])
    assert (fields["run key"], fields["name"], fields["ended"], fields["data"]) == ("k", "a name", "-", "-")


@pytest.mark.parametrize(
    ("checkpoint", "shown"),
    [
        ({"done": 12_000, "of": 100_000}, "12,000/100,000 12 %"),
        ({"done": 999, "of": 1_000, "last": "x"}, "999/1,000 99 %"),
        ({"done": 10, "of": 10}, "10/10 100 %"),
        ({"done": 0, "of": 10}, "0/10 0 %"),
        ({"done": 12, "of": 10}, "12/10 120 %"),
        *(
            (data, None)
            for data in (
                {"done": 1},
                {"of": 1},
                {"done": 1, "of": 0},
                {"done": -1, "of": 10},
                {"done": True, "of": 2},
                {"done": 0.5, "of": 1},
                {"done": "1", "of": "2"},
                {},
            )
        ),
    ],
    ids=str,
)
def test_ls_shows_progress(
    tenure: Tenure, service: JobSchedulerService, checkpoint: dict[str, object], shown: str | None
) -> None:
    """C7.6: of a checkpoint that says how much is done, and of how much; others are for `show`."""
    acquired(service, "other")
    won = acquired(service, "import")
    service.checkpoint(won, checkpoint)
    header, line, other = tenure("ls").out.splitlines()
    if shown is None:
        assert "PROGRESS" not in header
    else:
        at = header.index("PROGRESS")
        assert line[at : header.index("ID")].strip() == shown
        assert other[at] == "-"
    fields = dict(re.split(r" {2,}", each, maxsplit=1) for each in tenure("show", str(won.id)).out.splitlines())
    assert (json.loads(fields["checkpoint"]), fields.get("progress")) == (checkpoint, shown)
    assert fields["checkpointed"].endswith("ago)")
    assert tenure("ls", "--json").json[0]["checkpoint"] == checkpoint


def test_show_lists_every_attempt(tenure: Tenure, service: JobSchedulerService, database_url: str) -> None:
    """C7.6: who held the run, when it began, how it ended, what it left; no owner token (C11)."""
    first = acquired(service, "import")
    service.fail(first, {"error": "ValueError: no"})
    second = acquired(service, "import")
    age(database_url, second.id, timedelta(minutes=20))
    third = acquired(service, "import")
    shown = tenure("show", str(third.id))
    fields = dict(re.split(r" {2,}", line, maxsplit=1) for line in shown.out.splitlines())
    began = r"node-a, began 20\S+ \S+Z \(\S+ ago\)"
    assert re.fullmatch(began + r', failed after \S+, {"error": "ValueError: no"}', fields["attempt 1"])
    assert re.fullmatch(began + r", died, last heard of after \S+", fields["attempt 2"])
    assert re.fullmatch(began + r", running", fields["attempt 3"])
    found = tenure("show", str(third.id), "--json")
    assert [(each["attempt"], each["state"], each["died"], each["error"]) for each in found.json["attempts"]] == [
        (1, "failed", False, "ValueError: no"),
        (2, "lease expired", True, None),
        (3, "running", False, None),
    ]
    assert re.fullmatch(INSTANT, found.json["attempts"][0]["ended_at"])
    for lease in (first, second, third):
        assert str(lease.owner_token) not in shown.out + found.out


@pytest.mark.parametrize("unknown", ["00000000-0000-4000-8000-000000000000", "v2:nothing", "\udcff", ""])
def test_show_of_an_unknown_run_is_one_line(tenure: Tenure, unknown: str) -> None:
    """Exit 1."""
    done = tenure("show", unknown, "--json")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("tenure: There is no run with the ")


def test_ls_of_a_code_that_is_no_text_is_refused(tenure: Tenure) -> None:
    """Bytes that are no UTF-8 are a mistake on the command line (C11)."""
    done = tenure("ls", "--code", "\udcff")
    assert (done.code, "not valid UTF-8" in done.err) == (2, True)


@pytest.mark.parametrize("limit", ["0", "-1", "10001", "many"])
def test_ls_refuses_a_limit_that_is_none(tenure: Tenure, limit: str) -> None:
    """Exit 2, and the limit is named (C11)."""
    done = tenure("ls", "--limit", limit)
    assert (done.code, "--limit" in done.err) == (2, True)


@pytest.mark.parametrize("limit", ["1", "10000"])
def test_ls_takes_every_limit_that_the_library_takes(tenure: Tenure, limit: str) -> None:
    """The bounds are the same."""
    assert tenure("ls", "--limit", limit).code == 0


@pytest.fixture
def hostile(service: JobSchedulerService, database_url: str) -> JobAcquired:
    """A run whose every text tries to do something to a terminal."""
    won = acquired(service, HOSTILE, run_key=HOSTILE, name=HOSTILE)
    service.fail(won, {"stderr": HOSTILE})
    execute(database_url, 'UPDATE public."job-scheduler" SET "owner" = %s', HOSTILE)
    return won


def test_escape_sequences_are_shown_and_not_obeyed(tenure: Tenure, hostile: JobAcquired) -> None:
    """In lines, in JSON and in messages, whatever a job was named (C11)."""
    outputs = [
        tenure("ls").out,
        tenure("show", str(hostile.id)).out,
        tenure("show", HOSTILE).err,
        tenure("ls", HOSTILE).err,
    ]
    for output in outputs:
        assert HARMLESS in output
        assert output.replace("\n", "").isprintable()
    assert tenure("ls", "--json").out.isascii()
    assert tenure("ls", "--json").json[0]["name"] == HOSTILE


def test_a_skip_line_is_harmless(tenure: Tenure, hostile: JobAcquired) -> None:
    """Its holder may have any name."""
    done = tenure("run", HOSTILE, "--run-key", HOSTILE, "--", "true")
    assert done.code == 0
    skipped = tenure("run", HOSTILE, "--run-key", HOSTILE, "--skip-exit-code", "9", "--", "true")
    assert (skipped.code, f"Skipped: {HARMLESS} {HARMLESS}" in skipped.err) == (9, True)
    assert skipped.err.rstrip("\n").isprintable()


@pytest.mark.usefixtures("hostile")
def test_a_table_on_a_terminal_is_harmless_and_can_be_without_colour(database_url: str) -> None:
    """Rich's own markup in a name is text, and NO_COLOR is respected."""
    for more, coloured in ({}, True), ({"NO_COLOR": "1"}, False):
        wide = Tenure(database_url, {"COLUMNS": "300", "TERM": "xterm-256color", **more})
        with wide.start("ls", before=on_terminal(), stdin=subprocess.PIPE) as process:
            done = finished(process)
        assert done.code == 0
        assert HARMLESS in done.out
        assert "\x1b[2J" not in done.out
        assert ("\x1b[31m" in done.out) is coloured


def test_no_secret_is_shown(tenure: Tenure, database_url: str, three: list[JobAcquired]) -> None:
    """Looking on gives no power over a run: no owner token anywhere (C11)."""
    execute(database_url, 'DELETE FROM public."job-scheduler" WHERE "id" <> %s', three[2].id)
    token = owner_token(database_url)
    assert token == str(three[2].owner_token)
    name = str(three[2].id)
    for arguments in ["ls"], ["ls", "--json"], ["show", name], ["show", name, "--json"], ["show", token]:
        done = tenure(*arguments)
        assert token not in done.out
        assert arguments[-1] == token or token not in done.err


def test_a_reader_that_has_gone_ends_us_quietly(tenure: Tenure, three: list[JobAcquired]) -> None:
    """As under `| head`: no traceback, 128 + SIGPIPE."""
    for arguments in ["ls"], ["ls", "--json"], ["show", str(three[0].id)], ["schema", "print"]:
        with tenure.start(*arguments) as process:
            assert process.stdout
            process.stdout.close()
            process.stdout = None
            done = finished(process)
        assert (done.code, done.err) == (141, "")


def test_a_full_disk_is_said(tenure: Tenure) -> None:
    """Exit 74, one line."""
    with open("/dev/full", "wb") as full, tenure.start("ls", stdout=full) as process:
        done = finished(process)
    assert (done.code, done.err) == (74, "tenure: The output could not be written: No space left on device.\n")


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_stream_that_was_closed_is_no_error(tenure: Tenure, stream: int) -> None:
    """No connection to the database gets its number, to be written to by mistake."""
    closing = ("sh", "-c", f'exec "$@" {stream}>&-', "sh")
    with tenure.start("ls", before=closing) as process:
        assert finished(process).code == 0


def test_an_ascii_terminal_is_no_error(database_url: str, service: JobSchedulerService) -> None:
    """What its encoding lacks is escaped."""
    acquired(service, "päivä")
    done = Tenure(database_url, {"PYTHONIOENCODING": "ascii"})("ls")
    assert (done.code, r"p\xe4iv\xe4" in done.out) == (0, True)


def a_run(**changes: object) -> RunRecord:
    """Make a run that a NestJS node holds."""
    instant = datetime(2026, 7, 20, 3, 0, 0, 123_456, tzinfo=UTC)
    values: dict[str, object] = {
        "id": uuid4(),
        "idempotency_key": "v2:x",
        "code": "x",
        "run_key": None,
        "name": None,
        "type": JobSchedulerType.SCHEDULE,
        "status": JobSchedulerStatus.RUNNING,
        "attempt": 1,
        "fencing_token": 1,
        "holder": None,
        "lease_ms": None,
        "data": None,
        "created_at": instant,
        "started_at": None,
        "modified_at": instant,
        "finished_at": None,
        "lease_left": None,
    }
    return RunRecord(**{**values, **changes})  # type: ignore[arg-type]


def test_unknown_facts_of_another_kind_of_node_are_null() -> None:
    """A NestJS node records neither its name nor its lease length (C3.4)."""
    shown = run_as_json(a_run())
    assert (shown["holder"], shown["lease_ms"], shown["lease_left_ms"], shown["started_at"]) == (None,) * 4
    assert shown["created_at"] == "2026-07-20T03:00:00.123Z"


@pytest.mark.parametrize(
    ("instant", "shown"),
    [
        (None, "-"),
        (datetime(2026, 7, 20, 3, 0, tzinfo=UTC), "2026-07-20 03:00:00Z (5m ago)"),
        (datetime(2026, 7, 20, 3, 20, tzinfo=UTC), "2026-07-20 03:20:00Z (in 15m)"),
        (datetime.max.replace(tzinfo=UTC), "9999-12-31 23:59:59Z (in 2912242d20h)"),
    ],
)
def test_instants_are_utc_and_relative(instant: datetime | None, shown: str) -> None:
    """Whatever the zone of the reader is."""
    assert when(instant, datetime(2026, 7, 20, 3, 5, tzinfo=UTC)) == shown


def test_ls_by_outcome(tenure: Tenure, service: JobSchedulerService, database_url: str) -> None:
    """C10.5: what a row's status hides is a column and a filter; a status that says it all counts as its outcome."""
    for code, outcome in (("a", "skipped"), ("b", None)):
        won = acquired(service, code)
        service.complete(won)
        execute(database_url, f'UPDATE {TABLE} SET "outcome" = %s WHERE "id" = %s', outcome, won.id)
    service.fail(acquired(service, "c"))
    codes = {
        outcome: [run["code"] for run in tenure("ls", "--outcome", outcome, "--json").json]
        for outcome in ("skipped", "succeeded", "failed", "too late")
    }
    assert codes == {"skipped": ["a"], "succeeded": ["b"], "failed": ["c"], "too late": []}
    assert "OUTCOME" in tenure("ls").out.splitlines()[0]
    refused = tenure("ls", "--outcome", "nonsense")
    assert (refused.code, "'nonsense' is not one of" in refused.err) == (2, True)


@pytest.fixture
def many(service: JobSchedulerService) -> list[JobAcquired]:
    """Seven runs of one job, oldest first."""
    return [acquired(service, "many", run_key=str(number)) for number in range(7)]


def test_ls_goes_from_page_to_page(tenure: Tenure, many: list[JobAcquired]) -> None:
    """Each run once; a page says how to go on, the last one does not."""
    keys, before = list[str](), list[str]()
    for size in 3, 3, 1:
        page = tenure("ls", "--limit", "3", "--json", *before).json
        assert len(page) == size
        keys += [run["run_key"] for run in page]
        before = ["--before", str(page[-1]["fencing_token"])]
    assert keys == list("6543210")
    first = tenure("ls", "--limit", "3")
    assert f"There are more. The next page: the same with --before {many[4].fencing_token}" in first.err
    assert tenure("ls", "--limit", "7").err == ""
    assert tenure("ls", "--limit", "3", "--before", str(many[1].fencing_token)).err == ""


def test_ls_of_a_span_and_a_node(
    tenure: Tenure, service: JobSchedulerService, rival: JobSchedulerService, database_url: str
) -> None:
    """Instants, and durations ago; by when leases began, which tokens follow."""
    acquired(service, "old")
    execute(database_url, f'UPDATE {TABLE} SET "startedAt" = "startedAt" - interval \'1 day\'')
    acquired(rival, "new")
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    for options, codes in (
        (["--since", "1h"], ["new"]),
        (["--since", hour_ago], ["new"]),
        (["--until", "1h"], ["old"]),
        (["--since", "2d", "--until", "1m"], ["old"]),
        (["--node", "node-a"], ["old"]),
        (["--node", "node-b"], ["new"]),
        (["--node", "nobody"], []),
    ):
        assert [run["code"] for run in tenure("ls", "--json", *options).json] == codes, options
    refused = tenure("ls", "--since", "yesterday")
    assert (refused.code, "'yesterday' is no instant" in refused.err) == (2, True)


@needs_wrong_clocks
def test_how_long_ago_is_by_the_databases_clock(database_url: str, service: JobSchedulerService) -> None:
    """C10.2: for filters and for what is written: a machine whose clock is days off shows the same."""
    acquired(service, "new")
    tenure = Tenure(database_url, clock_off_by("+3d", monotonic=True))
    assert [run["code"] for run in tenure("ls", "--json", "--since", "1h").json] == ["new"]
    assert re.search(r"\b\d+(ms|s) ago|now", tenure("ls", "--since", "1h").out)
    assert "new" in tenure("timeline", "--since", "1h").out


def test_show_gives_instants_here_too(database_url: str, service: JobSchedulerService) -> None:
    """UTC, local and relative; the local one only where it differs."""
    run = acquired(service, "report")
    here = Tenure(database_url, {"TZ": "Asia/Kathmandu"})("show", str(run.id))
    assert re.search(r"^began +20\S+ \S+Z = (20\S+ )?\d\d:\d\d:\d\d\+0545 \(\S+ ago\)$", here.out, re.MULTILINE)
    utc = Tenure(database_url, {"TZ": "UTC"})("show", str(run.id))
    assert re.search(r"^began +20\S+ \S+Z \(\S+ ago\)$", utc.out, re.MULTILINE)
