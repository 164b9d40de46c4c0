"""What every test stands on: one real PostgreSQL a session, one database a test, and nothing left running.

With `--through`, the URLs of those databases lead through a PgBouncer in transaction mode. Tests that meet none of
these databases would tell nothing new, and those marked `direct` say why they cannot: both are deselected.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import pytest

from tenure import AsyncJobSchedulerService, JobSchedulerService
from tenure.embedded import EmbeddedPostgres
from tests.support.pgbouncer import NEEDS_NEWER, PROGRAM, pgbouncer, preparing_program
from tests.support.servers import Databases, create_database, start_test_server
from tests.support.waiting import eventually

TEMPLATE = "tenure_template"
ROOT = Path(__file__).resolve().parent.parent
POOLED = "pgbouncer"
POOLED_PREPARED = "pgbouncer-prepared"

Door: TypeAlias = "Callable[[str], str]"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail if anything was skipped, as CI does")
    parser.addoption(
        "--through",
        choices=[POOLED, POOLED_PREPARED],
        help="reach the databases through PgBouncer in transaction mode; the second one keeps prepared statements",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "direct(reason): cannot be run through a pooler, and why")
    wanted = config.getoption("--through")
    if wanted and PROGRAM is None:
        raise pytest.UsageError("--through needs PgBouncer (Debian: pgbouncer), or TENURE_PGBOUNCER to name one")
    if wanted == POOLED_PREPARED and preparing_program() is None:
        raise pytest.UsageError(f"--through={wanted} {NEEDS_NEWER}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot pass through a pooler, or does not come near it."""
    for item in items:
        for mark in item.iter_markers("direct"):
            assert len(mark.args) == 1, f"{item.nodeid}: direct needs a reason"
    if config.getoption("--through"):
        left_out = [item for item in items if not _meets_the_door(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _meets_the_door(item)]


def _meets_the_door(item: pytest.Item) -> bool:
    return "door" in getattr(item, "fixturenames", ()) and item.get_closest_marker("direct") is None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that must skip nothing and did."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    """A real PostgreSQL without durability, with a template database that holds the schema."""
    with start_test_server() as running:
        create_database(running, TEMPLATE)
        with JobSchedulerService(running.url(TEMPLATE)) as service:
            service.migrate()
        yield running


@pytest.fixture(scope="session")
def databases(server: EmbeddedPostgres) -> Iterator[Databases]:
    """What makes the databases of that server."""
    made = Databases(server)
    yield made
    made.close()


@pytest.fixture(scope="session")
def door(server: EmbeddedPostgres, request: pytest.FixtureRequest) -> Iterator[Door]:
    """The way to the server's databases: gives the URL to use for a direct one."""
    through = request.config.getoption("--through")
    if through is None:
        yield lambda url: url
        return
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        pgbouncer(server.url(), Path(folder), pool_size=40, prepared=through == POOLED_PREPARED) as pooled,
    ):
        yield lambda url: urlsplit(url)._replace(netloc=urlsplit(pooled).netloc).geturl()


@pytest.fixture
def database_url(databases: Databases, door: Door) -> Iterator[str]:
    """A fresh database with the schema."""
    with databases.one(TEMPLATE) as url:
        yield door(url)


@pytest.fixture
def empty_database_url(databases: Databases, door: Door) -> Iterator[str]:
    """A fresh database without anything in it."""
    with databases.one() as url:
        yield door(url)


@pytest.fixture
def service(database_url: str) -> Iterator[JobSchedulerService]:
    """A blocking service on a fresh database."""
    with JobSchedulerService(database_url, owner_label="node-a") as made:
        yield made


@pytest.fixture
def rival(database_url: str) -> Iterator[JobSchedulerService]:
    """Another node: a second blocking service on the same database."""
    with JobSchedulerService(database_url, owner_label="node-b") as made:
        yield made


@pytest.fixture
async def async_service(database_url: str) -> AsyncIterator[AsyncJobSchedulerService]:
    """An async service on a fresh database."""
    async with AsyncJobSchedulerService(database_url, owner_label="node-a") as made:
        yield made


@pytest.fixture(autouse=True)
def no_keeper_is_left() -> Iterator[None]:
    """Fail a test that leaves a renewal thread behind."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: not [t for t in threading.enumerate() if t.name == "tenure-keeper" and t not in before], 5)
