"""`tenure schema adopt`: shows, asks, does (C9.3, C11)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

import psycopg
import pytest

from tenure import JobSchedulerService
from tenure.statements import Table
from tests.cli.commands import Finished, Tenure
from tests.scenarios.test_schema import catalog
from tests.support.nestjs import NestNode, lock_key, make_nestjs_table
from tests.support.rows import TABLE, execute
from tests.support.waiting import eventually

HANOI = "Asia/Ho_Chi_Minh"
ADOPT = ("schema", "adopt")
IN_HANOI = (*ADOPT, "--written-in-time-zone", HANOI)


@pytest.fixture
def nest_url(empty_database_url: str) -> str:
    """A database with TypeORM's table and one run, written by a session in Hanoi."""
    make_nestjs_table(empty_database_url)
    with NestNode(empty_database_url, time_zone=HANOI) as node:
        assert node.acquire(lock_key("run", "tick"), "run")
    return empty_database_url


@pytest.fixture
def tenure(nest_url: str) -> Tenure:
    return Tenure(nest_url)


def untouched(url: str, table: Table | None = None) -> bool:
    return "fencingToken" not in str(catalog(url, table or Table())["columns"])


class Terminal:
    """A person at a terminal: reads stderr, types answers."""

    def __init__(self, process: subprocess.Popen[bytes], keyboard: int) -> None:
        self._process, self._keyboard, self.seen = process, keyboard, ""

    def answer(self, question: str, text: str) -> None:
        assert self._process.stderr
        os.set_blocking(self._process.stderr.fileno(), False)
        before = len(self.seen)

        def asked() -> bool:
            assert self._process.stderr
            self.seen += (self._process.stderr.read() or b"").decode()
            return question in self.seen[before:]

        eventually(asked, 30.0)
        os.write(self._keyboard, f"{text}\n".encode())

    def end(self) -> Finished:
        assert self._process.stderr
        os.set_blocking(self._process.stderr.fileno(), True)
        out, err = self._process.communicate(timeout=60)
        return Finished(self._process.returncode, out.decode(), self.seen + err.decode())


@contextmanager
def at_a_terminal(tenure: Tenure, *arguments: str) -> Generator[Terminal]:
    keyboard, stdin = os.openpty()
    try:
        with tenure.start(*arguments, stdin=stdin) as process:
            yield Terminal(process, keyboard)
    finally:
        os.close(stdin)
        os.close(keyboard)


def test_it_shows_does_and_says_so(tenure: Tenure, nest_url: str) -> None:
    """C9.3: the plan as SQL, then one line; the check is content; a second time there is nothing to do."""
    done = tenure(*IN_HANOI, "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("-- Read as Asia/Ho_Chi_Minh, the newest time in the table is ")
    assert "AT TIME ZONE 'Asia/Ho_Chi_Minh'" in done.out
    assert done.out.endswith('"public"."job-scheduler": adopted\n')
    assert tenure("schema", "check").code == 0
    assert tenure("schema", "apply").out == '"public"."job-scheduler": up to date\n'
    again = tenure(*ADOPT)
    assert (again.code, again.out) == (0, '"public"."job-scheduler": nothing to do\n')


def test_a_dry_run_changes_nothing_and_prints_sql_that_works(tenure: Tenure, nest_url: str) -> None:
    """C9.3: for those who run SQL with a tool of their own."""
    shown = tenure(*IN_HANOI, "--dry-run")
    assert (shown.code, shown.err) == (0, "")
    assert untouched(nest_url)
    with psycopg.connect(nest_url, autocommit=True) as connection:
        connection.execute(shown.out.encode())
    with JobSchedulerService(nest_url) as service:
        assert service.check_schema() == []
    assert tenure(*ADOPT).out == '"public"."job-scheduler": nothing to do\n'


def test_a_dry_run_waits_for_nobody(tenure: Tenure, nest_url: str) -> None:
    """C9.3: nodes may be at work on the table."""
    with psycopg.connect(nest_url) as other:
        other.execute(f"LOCK TABLE {TABLE} IN ROW EXCLUSIVE MODE".encode())
        assert tenure(*IN_HANOI, "--dry-run", "--lock-timeout", "1s").code == 0


def test_without_a_terminal_it_asks_nobody(tenure: Tenure, nest_url: str) -> None:
    """C9.3, C11: the time zone and the agreement must be given; exit 2, nothing changed."""
    zone = tenure(*ADOPT, "--yes", stdin=b"UTC\ny\n")
    assert zone.code == 2
    assert "have no time zone. Say which one they were written in" in zone.err
    assert "Use --written-in-time-zone." in zone.err
    agreement = tenure(*IN_HANOI, stdin=b"y\n")
    assert agreement.code == 2
    assert "give --yes" in agreement.err
    assert untouched(nest_url)


def test_on_a_terminal_it_asks_for_the_zone_until_one_fits_and_for_agreement(tenure: Tenure, nest_url: str) -> None:
    """C9.3: one that is unknown, and one in which rows were written in the future, are asked for again."""
    with at_a_terminal(tenure, *ADOPT) as terminal:
        terminal.answer("Time zone", "Asia/Hanoi")
        terminal.answer("Time zone", "UTC")
        terminal.answer("Time zone", HANOI)
        terminal.answer('Do this to "public"."job-scheduler"?', "y")
        done = terminal.end()
    assert done.code == 0
    assert "knows no time zone 'Asia/Hanoi'" in done.err
    assert "were not all written in UTC" in done.err
    assert done.out.endswith("adopted\n")
    assert not untouched(nest_url)


def test_on_a_terminal_no_means_no(tenure: Tenure, nest_url: str) -> None:
    """C9.3: exit 1, nothing changed; so does an answer that is no more than Enter."""
    for answer in ("n", ""):
        with at_a_terminal(tenure, *IN_HANOI) as terminal:
            terminal.answer("Do this to", answer)
            done = terminal.end()
        assert done.code == 1
        assert done.err.endswith("tenure: Nothing was changed.\n")
        assert untouched(nest_url)


def test_only_what_was_shown_is_done(tenure: Tenure, nest_url: str) -> None:
    """C9.3: a table that changed while a person thought is left alone."""
    with at_a_terminal(tenure, *IN_HANOI) as terminal:
        terminal.answer("Do this", "maybe")
        execute(nest_url, f'CREATE INDEX of_mine ON {TABLE} ("modifiedAt")')
        terminal.answer("Do this", "y")
        done = terminal.end()
    assert done.code == 78
    assert "has changed since the plan was made" in done.err
    assert untouched(nest_url)


def test_any_schema_and_table(empty_database_url: str) -> None:
    """C9.2: the table that is named, and no other."""
    table = Table('o"dd', "jobs of ours")
    make_nestjs_table(empty_database_url, table.schema, table.name)
    make_nestjs_table(empty_database_url)
    tenure = Tenure(empty_database_url)
    where = ("--schema", table.schema, "--table", table.name)
    assert tenure(*ADOPT, "--yes", *where).out.endswith('"o""dd"."jobs of ours": adopted\n')
    assert tenure("schema", "check", *where).code == 0
    assert untouched(empty_database_url)


@pytest.mark.parametrize("limit", ["soon", "0"])
def test_a_bad_lock_timeout_is_a_usage_error(tenure: Tenure, nest_url: str, limit: str) -> None:
    """C11: exit 2, nothing changed."""
    done = tenure(*IN_HANOI, "--yes", "--lock-timeout", limit)
    assert done.code == 2
    assert untouched(nest_url)


def test_a_table_in_use_is_exit_69(tenure: Tenure, nest_url: str) -> None:
    """C9.3: after the lock time-out, in one line."""
    with psycopg.connect(nest_url) as other:
        other.execute(f"LOCK TABLE {TABLE} IN ROW EXCLUSIVE MODE".encode())
        done = tenure(*IN_HANOI, "--yes", "--lock-timeout", "200ms")
    assert done.code == 69
    assert "for longer than the lock time-out. Nothing was changed." in done.err
    assert untouched(nest_url)


def test_what_cannot_be_adopted_is_exit_78(tenure: Tenure, nest_url: str) -> None:
    """C11: in one line, without a stack trace."""
    execute(nest_url, f'ALTER TABLE {TABLE} DROP COLUMN "lockKey"')
    done = tenure(*IN_HANOI, "--yes")
    assert (done.code, done.out) == (78, "")
    assert 'It is no table of runs: it has no column "lockKey".' in done.err
    assert len(done.err.splitlines()) == 1


def test_nothing_to_adopt_is_exit_78(empty_database_url: str) -> None:
    """C9.4: the command that makes a table is named."""
    done = Tenure(empty_database_url)(*ADOPT)
    assert done.code == 78
    assert "tenure schema apply" in done.err


def test_the_embedded_server_has_nothing_to_adopt(tenure: Tenure) -> None:
    """C11."""
    done = tenure(*ADOPT, "--embedded")
    assert done.code == 2
    assert "Give --database-url" in done.err


def test_apply_points_to_adopt(tenure: Tenure, nest_url: str) -> None:
    """C9.1, C9.3: a table that tenure did not make is refused with the way out."""
    done = tenure("schema", "apply")
    assert done.code == 78
    assert "tenure schema adopt" in done.err
    assert untouched(nest_url)
