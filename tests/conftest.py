"""What every test stands on: one real PostgreSQL a session, one database a test, and nothing left running."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tenure import AsyncJobSchedulerService, JobSchedulerService
from tenure.embedded import EmbeddedPostgres
from tests.support.servers import create_database, drop_database, start_test_server
from tests.support.waiting import eventually

TEMPLATE = "tenure_template"
ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail if anything was skipped, as CI does")


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


@pytest.fixture
def database_url(server: EmbeddedPostgres) -> Iterator[str]:
    """A fresh database with the schema."""
    name = f"t_{uuid4().hex[:12]}"
    create_database(server, name, template=TEMPLATE)
    yield server.url(name)
    drop_database(server, name)


@pytest.fixture
def empty_database_url(server: EmbeddedPostgres) -> Iterator[str]:
    """A fresh database without anything in it."""
    name = f"t_{uuid4().hex[:12]}"
    create_database(server, name)
    yield server.url(name)
    drop_database(server, name)


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
