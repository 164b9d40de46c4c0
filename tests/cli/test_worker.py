"""`tenure worker`: whose scheduler it runs, how signals end it, and what it says of its health (C10.8; C11)."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.commands import LIMIT_S, Finished, Process, Tenure, finished
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, execute
from tests.support.waiting import eventually

KINDS = ["AsyncScheduler", "Scheduler"]
ASYNC = """
import asyncio, os
from datetime import timedelta
from types import SimpleNamespace
from tenure import AsyncJobSchedulerService
from tenure.scheduling import AsyncScheduler, Every

service = AsyncJobSchedulerService(os.environ["TENURE_DATABASE_URL"])
scheduler = AsyncScheduler(service, poll=timedelta(milliseconds=200), retention=None, drain=timedelta(seconds=50))
app = SimpleNamespace(deep=SimpleNamespace(scheduler=scheduler))
empty = AsyncScheduler(service)

@scheduler.job("work", schedule=Every(timedelta(seconds=1)))
async def work(run):
    open("began", "w").close()
    while not os.path.exists("let-it-end"):
        await asyncio.sleep(0.01)
    return {"ended": True}

def make():
    return scheduler
"""
BLOCKING = (
    ASYNC.replace("AsyncJobSchedulerService", "JobSchedulerService")
    .replace("AsyncScheduler", "Scheduler")
    .replace("import asyncio,", "import time,")
    .replace("async def", "def")
    .replace("await asyncio.sleep", "time.sleep")
)

FAILING = (
    ASYNC
    + """
@scheduler.job("failing", schedule=Every(timedelta(seconds=1)))
async def failing(run):
    raise ValueError("no luck")
"""
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of an application: `app_of.AsyncScheduler`, `app_of.Scheduler`."""
    package = tmp_path / "app_of"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "AsyncScheduler.py").write_text(ASYNC)
    (package / "Scheduler.py").write_text(BLOCKING)
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "dividing.py").write_text("\n1 / 0\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit('no\\nluck')\n")
    (tmp_path / "needy.py").write_text("import no_such_dependency\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def working(tenure: Tenure, folder: Path, kind: str, *options: str) -> Generator[Process]:
    """Start a worker and wait until a callback is under way: a run that was only claimed would be released."""
    with tenure.start("worker", f"app_of.{kind}:scheduler", *options, cwd=folder) as process:
        eventually((folder / "began").exists, 30)
        yield process


def runs(url: str, status: str) -> list[tuple[Any, ...]]:
    """Give outcome, attempt and data of the runs that stand so."""
    return execute(url, f'SELECT "outcome", "attempt", "data" FROM {TABLE} WHERE "status"::text = %s', status)


def told(process: Process, number: signal.Signals, path: Path | None = None) -> Finished:
    """Send a signal, let the callbacks end if asked to, and wait for the end."""
    process.send_signal(number)
    if path:
        path.touch()
    return finished(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_lets_callbacks_end_and_is_exit_0(
    tenure: Tenure, folder: Path, database_url: str, kind: str, number: signal.Signals
) -> None:
    """C10.8: what runs goes on to its end and is recorded; nothing begins any more; no node is left on the list."""
    with working(tenure, folder, kind) as process:
        done = told(process, number, folder / "let-it-end")
    assert (done.code, done.out) == (0, "")
    assert f"tenure: Running 1 job of app_of.{kind}:scheduler: work." in done.err
    assert done.err.endswith("tenure: Stopped.\n")
    began = [run for run in runs(database_url, "SUCCESS") if run[1] > 0]
    assert began == [("succeeded", 1, {"ended": True})]
    assert [*runs(database_url, "RUNNING"), *runs(database_url, "FAIL")] == []
    assert execute(database_url, 'SELECT FROM "job-scheduler_nodes"') == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_outlasts_the_drain_is_released(tenure: Tenure, folder: Path, database_url: str, kind: str) -> None:
    """C10.8: `--drain` holds instead of the scheduler's own 50 s; another node may retry the same tick at once."""
    with working(tenure, folder, kind, "--drain", "200ms") as process:
        done = told(process, signal.SIGTERM)
    assert done.code == 0
    assert runs(database_url, "RUNNING") == []
    assert [(outcome, attempt) for outcome, attempt, _ in runs(database_url, "FAIL")] == [("released", 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_signal_forces(tenure: Tenure, folder: Path, database_url: str, kind: str) -> None:
    """C10.8: it ends the 50 s of grace now, and releases what is left."""
    with working(tenure, folder, kind) as process:
        process.send_signal(signal.SIGTERM)
        eventually(lambda: ticks_stand_still(database_url), 20)
        assert process.poll() is None
        done = told(process, signal.SIGTERM)
    assert done.code == 0
    assert [(outcome, attempt) for outcome, attempt, _ in runs(database_url, "FAIL")] == [("released", 1)]


def test_a_third_signal_waits_for_nothing(tenure: Tenure, folder: Path, database_url: str) -> None:
    """C10.8: though a callback does not hear that it is cancelled, which asyncio itself waits for; exit 130."""
    (folder / "deaf.py").write_text(ASYNC.replace("await asyncio.sleep(0.01)", DEAF))
    with tenure.start("worker", "deaf:scheduler", cwd=folder) as process:
        eventually((folder / "began").exists, 30)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: ticks_stand_still(database_url), 20)
        process.send_signal(signal.SIGTERM)
        eventually((folder / "cancelled").exists, 20)
        assert process.poll() is None
        done = told(process, signal.SIGTERM)
    assert done.code == 130
    assert done.err.endswith("tenure: Ended at once. What ran here is taken up by another node when its lease ends.\n")


DEAF = """try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            open("cancelled", "w").close()"""


def ticks_stand_still(url: str) -> bool:
    """Say whether the job's watermark is two seconds old: its next ticks were not decided."""
    ((still,),) = execute(
        url, 'SELECT clock_timestamp() - "watermark" > interval \'2 seconds\' FROM "job-scheduler_jobs"'
    )
    return bool(still)


def test_a_dotted_attribute_and_a_scheduler_without_jobs(tenure: Tenure, folder: Path) -> None:
    """What is named may lie deeper; one that runs nothing is said to."""
    for place, said in (
        ("app_of.Scheduler:app.deep.scheduler", "Running 1 job of app_of.Scheduler:app.deep.scheduler: work."),
        ("app_of.AsyncScheduler:empty", "app_of.AsyncScheduler:empty has no jobs of its own."),
    ):
        with tenure.start("worker", place, "--health-port", "0", "--drain", "0", cwd=folder, bufsize=0) as process:
            url = address(process)
            eventually(lambda url=url: ask(url)[0] == 200, 30)  # type: ignore[misc] # bound for the loop's sake
            done = told(process, signal.SIGTERM)
        assert (done.code, said in done.err) == (0, True)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nothing", "'nothing' does not name a scheduler. Write package.module:scheduler."),
        (":x", "':x' does not name a scheduler"),
        ("app_of.Scheduler:", "does not name a scheduler"),
        ("no_such_module:x", "There is no module 'no_such_module' in /"),
        ("app_of.nowhere:x", "There is no module 'app_of.nowhere' in /"),
        ("app_of.Scheduler:no_such", "app_of.Scheduler has no 'no_such'."),
        ("app_of.Scheduler:app.deeper.x", "app_of.Scheduler:app has no 'deeper'."),
        ("app_of.Scheduler:make()", "'make()' is a call. Name the scheduler itself"),
        ("app_of.Scheduler:make", "app_of.Scheduler:make is a function, which is not called here"),
        ("app_of.Scheduler:service", "is a JobSchedulerService, not a Scheduler or an AsyncScheduler."),
        ("app_of.Scheduler:Scheduler", "is a type, not a Scheduler or an AsyncScheduler."),
        ("syntax:x", "syntax cannot be imported: SyntaxError: invalid syntax"),
        ("dividing:x", "dividing cannot be imported: ZeroDivisionError: division by zero"),
        ("leaving:x", "leaving cannot be imported: SystemExit: no luck"),
        ("needy:x", "needy cannot be imported: ModuleNotFoundError: No module named 'no_such_dependency'"),
    ],
)
def test_what_is_no_scheduler_is_one_clear_line(tenure: Tenure, folder: Path, place: str, said: str) -> None:
    """C11: exit 2, what is wrong and where, no traceback."""
    done = tenure("worker", place)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("tenure: Invalid value for MODULE:SCHEDULER: ")
    assert said in done.err.splitlines()[0]
    if "cannot be imported" in said:
        assert re.search(r"\.py, line \d+\)$", done.err.splitlines()[0])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--drain", "5x"], "'5x' is not a duration"),
        (["--health-port", "65536"], "--health-port"),
        (["--health-host", "127.0.0.1"], "--health-host is that of --health-port PORT"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_bad_options_are_refused(tenure: Tenure, folder: Path, options: list[str], said: str) -> None:
    """C11: before anything is imported or sent."""
    done = tenure("worker", "app_of.Scheduler:scheduler", *options)
    assert (done.code, said in done.err) == (2, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_schema_is_said(empty_database_url: str, folder: Path, kind: str) -> None:
    """C9.4, C11: with the command that mends it, exit 78."""
    done = Tenure(empty_database_url)("worker", f"app_of.{kind}:scheduler")
    assert (done.code, "tenure schema apply" in done.err) == (78, True)


def test_a_port_that_is_taken_is_said(tenure: Tenure, folder: Path) -> None:
    """C11: exit 69, and nothing has begun."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tenure("worker", "app_of.Scheduler:scheduler", "--health-port", str(port))
    assert (done.code, done.err) == (
        69,
        f"tenure: 127.0.0.1 port {port} cannot be listened on: Address already in use.\n",
    )
    refused = tenure("worker", "app_of.Scheduler:scheduler", "--health-port", "0", "--health-host", "no-such.invalid")
    assert (refused.code, "no-such.invalid port 0 cannot be listened on" in refused.err) == (69, True)


def address(process: Process) -> str:
    """Read where the health is served, the first line that a worker says, from a stderr without a buffer."""
    assert process.stderr is not None
    found = re.fullmatch(r"tenure: Health: (http://127\.0\.0\.1:\d+/healthz)\n", process.stderr.readline().decode())
    assert found
    return found[1]


def ask(url: str, method: str = "GET") -> tuple[int, str]:
    """Give status and text of an answer."""
    try:
        with urlopen(Request(url, method=method), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.direct("stands in front of the database itself")
def test_health_follows_the_database(database_url: str, folder: Path) -> None:
    """200 once started, 503 when the database was not heard of for 30 s, 200 again."""
    with FaultProxy.in_front_of(database_url) as proxy:
        tenure = Tenure(proxy.url(database_url))
        with healthy_worker(tenure, folder, "AsyncScheduler") as (process, url):
            assert ask(url, "HEAD") == (200, "")
            assert ask(f"{url}?from=probe")[0] == 200
            assert ask(url.replace("healthz", "x"))[0] == 404
            assert ask(url, "POST")[0] == 501
            proxy.refuse_new(True)
            proxy.reset_all()
            eventually(lambda: ask(url) == (503, "not healthy\n"), 60, 0.2)
            proxy.refuse_new(False)
            eventually(lambda: ask(url)[0] == 200, 30, 0.1)
            (folder / "let-it-end").touch()
            assert told(process, signal.SIGTERM).code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_drains_is_not_healthy(tenure: Tenure, folder: Path, kind: str) -> None:
    """C10.8: 503 from the signal on, so that nobody sends it anything, while what runs goes on."""
    with healthy_worker(tenure, folder, kind) as (process, url):
        eventually((folder / "began").exists, 30)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: ask(url)[0] == 503, 30)
        (folder / "let-it-end").touch()
        assert finished(process).code == 0


@contextmanager
def healthy_worker(tenure: Tenure, folder: Path, kind: str) -> Generator[tuple[Process, str]]:
    """Start a worker with a health port, and wait until it is healthy."""
    place = f"app_of.{kind}:scheduler"
    with tenure.start("worker", place, "--health-port", "0", cwd=folder, bufsize=0) as process:
        url = address(process)
        eventually(lambda: ask(url) == (200, "healthy\n"), 30)
        yield process, url


def test_an_applications_logging_is_left_to_it(tenure: Tenure, folder: Path) -> None:
    """An application that has said where its log goes finds the library's there; else warnings are said."""
    (folder / "let-it-end").touch()
    configured = "import logging\nlogging.basicConfig(format='LOG %(name)s %(message)s')\n" + FAILING
    for source, prefix in (configured, "LOG tenure Job 'failing'"), (FAILING, "tenure: Job 'failing'"):
        (folder / "logging_app.py").write_text(source)
        with tenure.start("worker", "logging_app:scheduler", cwd=folder) as process:
            eventually(lambda: failed(str(tenure.url)), 30)
            done = told(process, signal.SIGTERM)
        lines = [line for line in done.err.splitlines() if "Job 'failing'" in line and "no luck" in line]
        assert lines
        assert all(line.startswith(prefix) for line in lines)
        execute(str(tenure.url), f"DELETE FROM {TABLE}")


def failed(url: str) -> bool:
    return bool(execute(url, f"SELECT FROM {TABLE} WHERE \"code\" = 'failing' AND \"status\" = 'FAIL'"))


def test_the_working_directory_is_searched(tenure: Tenure, folder: Path) -> None:
    """The console script does so, too, which unlike `python -m` does not begin there."""
    script = (
        "import sys; from tenure.__main__ import main; "
        f"sys.path[:] = [place for place in sys.path if place not in ('', {str(folder)!r})]; "
        "sys.argv = ['tenure', 'worker', 'app_of.Scheduler:no_such']; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=tenure.environment,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, b"app_of.Scheduler has no 'no_such'" in done.stderr) == (2, True)
