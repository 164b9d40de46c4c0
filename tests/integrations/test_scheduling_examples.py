"""The examples of the scheduler: real processes, two at once, one of them killed in the middle of a run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.support.rows import TABLE, execute
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
TICKS = """
    SELECT t FROM "job-scheduler_jobs" AS job,
      LATERAL generate_series(
        (SELECT min("scheduledAt") FROM "job-scheduler" AS run WHERE run."code" = job."code"),
        job."watermark", interval '1 second') AS t
    WHERE job."code" = %s
"""


@dataclass
class Service:
    """One node, as a reader starts it."""

    process: subprocess.Popen[str]
    port: int

    def get(self, path: str) -> tuple[int, str]:
        """Ask it over HTTP."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, ""

    def kill_in_a_run(self, url: str, code: str) -> str:
        """Kill it while it has a run of that job, and give the run's key. A stopped process ends no run meanwhile."""
        held = (
            f'SELECT "lockKey" FROM {TABLE} WHERE "code" = %s AND "status" = \'RUNNING\' AND "owner" LIKE %s '
            'AND "attempt" = 1 LIMIT 1'
        )
        values = (code, f"%:{self.process.pid}")
        while True:
            eventually(lambda: execute(url, held, *values), 30)
            self.process.send_signal(signal.SIGSTOP)
            if found := execute(url, held, *values):
                self.process.kill()
                self.process.wait(10)
                return str(found[0][0])
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def started(name: str, url: str) -> Iterator[Service]:
    """Start an example; it is ended in order, or was killed."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        env={**os.environ, "DATABASE_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"serving on port (\d+)\n", line)
            assert found, line
            yield Service(process, int(found[1]))
            if process.poll() is None:
                process.terminate()
                assert process.stdout.read() == "stopped in order\n"
                assert process.wait(30) == 0
        finally:
            process.kill()


def run_of(url: str, key: str) -> tuple[Any, ...]:
    return execute(url, f'SELECT "status", "attempt", "owner" FROM {TABLE} WHERE "lockKey" = %s', key)[0]


def check_every_tick_ran_once(url: str, code: str, effects: str) -> None:
    """Each tick from the first to the watermark has its effect, once; nothing is left unfinished."""
    assert execute(url, f"SELECT * FROM {TABLE} WHERE \"status\" <> 'SUCCESS'") == []
    ticks = {tick for (tick,) in execute(url, TICKS, code)}
    written = [tick for (tick,) in execute(url, f"SELECT tick FROM {effects}")]
    assert len(ticks) > 3
    assert sorted(written) == sorted(ticks)


@pytest.mark.parametrize(
    ("example", "initial", "code", "effects"),
    [
        ("async_service.py", "seed-catalogue", "sync-orders", "orders"),
        ("threaded_service.py", "make-tables", "report", "reports"),
    ],
)
def test_two_services_share_the_ticks_and_one_finishes_what_the_other_began(
    database_url: str, example: str, initial: str, code: str, effects: str
) -> None:
    """C10.4, C10.6, C10.8, C8.2, C7.2: one seeds, both run ticks, a killed one's run is taken up, all is there once."""
    with ExitStack() as nodes:
        doomed, survivor = (nodes.enter_context(started(example, database_url)) for _ in range(2))
        assert execute(database_url, f'SELECT "status" FROM {TABLE} WHERE "code" = %s', initial) == [("SUCCESS",)]
        eventually(lambda: execute(database_url, f"SELECT count(DISTINCT node) FROM {effects}") == [(2,)], 60)
        assert doomed.get("/health")[0] == survivor.get("/health")[0] == 200
        key = doomed.kill_in_a_run(database_url, code)
        eventually(lambda: run_of(database_url, key)[0] == "SUCCESS", 30)
        _, attempt, owner = run_of(database_url, key)
        assert attempt == 2
        assert owner.endswith(f":{survivor.process.pid}")
        assert survivor.get("/health")[0] == 200
    check_every_tick_ran_once(database_url, code, effects)


def test_the_async_service_serves_beside_its_jobs(database_url: str) -> None:
    """examples/async_service.py: it answers while ticks run."""
    with started("async_service.py", database_url) as node:
        eventually(lambda: re.fullmatch(r"[1-9]\d* orders\n", node.get("/")[1]), 30)
    assert execute(database_url, "SELECT count(*) FROM catalogue") == [(2,)]


def test_the_threaded_services_next_attempt_goes_on_after_the_last_page(database_url: str) -> None:
    """C7.6: examples/threaded_service.py: no page is written twice, though its node was killed between two of them."""
    with ExitStack() as nodes:
        doomed, _survivor = (nodes.enter_context(started("threaded_service.py", database_url)) for _ in range(2))
        key = doomed.kill_in_a_run(database_url, "report")
        eventually(lambda: run_of(database_url, key)[0] == "SUCCESS", 30)
    assert execute(database_url, "SELECT tick, number FROM pages GROUP BY 1, 2 HAVING count(*) > 1") == []
    (pages,) = execute(
        database_url,
        f'SELECT count(*) FROM pages JOIN {TABLE} ON tick = "scheduledAt" WHERE "lockKey" = %s AND "code" = \'report\'',
        key,
    )
    assert pages == (5,)


def test_the_crontab_line_runs_on_one_of_two_hosts(database_url: str, tmp_path: Path) -> None:
    """C10.2: each line of `examples/crontab`, as cron runs it on two hosts at once; the second says who has it."""
    settings, commands = crontab(ROOT / "examples" / "crontab")
    assert settings["CRON_TZ"] == "Europe/Paris"
    ran = tmp_path / "ran"
    report = tmp_path / "nightly-report"
    report.write_text(f'#!/bin/sh\necho "$TENURE_SCHEDULED_AT $*" >> {ran}\nsleep 1\n')
    report.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {"PATH": path, "DATABASE_URL": database_url, "HOME": str(tmp_path)}
    for command in commands:
        hosts = [
            subprocess.Popen(["sh", "-c", command], env=environment, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        said = [host.communicate(timeout=60)[1] for host in hosts]
        assert [host.returncode for host in hosts] == [0, 0]
        assert sorted("Skipped: nightly-report" in each for each in said) == [False, True]
    ((key, status),) = execute(database_url, f'SELECT "runKey", "status"::text FROM {TABLE}')
    assert status == "SUCCESS"
    assert ran.read_text() == f"{key} --all\n"


def crontab(path: Path) -> tuple[dict[str, str], list[str]]:
    """Give the settings and the commands of a crontab; each line's own fields are those that its command is given."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
    commands = []
    for line in lines:
        if not re.match(r"\w+=", line):
            *fields, command = line.split(None, 5)
            assert f"--cron '{' '.join(fields)}'" in command
            commands.append(command.replace("\\%", "%"))
    return settings, commands
