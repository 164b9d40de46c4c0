"""A database with the demo's tables, as nodes find it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import pytest

from tenure import JobSchedulerService
from tenure.demo.tables import Tables

SCHEMA = "tenure_demo_test"


class Connect(Protocol):
    """Connect to the demo's tables as one more node."""

    def __call__(self) -> AbstractContextManager[Tables]: ...


@pytest.fixture
def demo_service(empty_database_url: str) -> Iterator[JobSchedulerService]:
    """A service on a schema of the demo's own."""
    with JobSchedulerService(empty_database_url, schema=SCHEMA, owner_label="node-1") as service:
        service.migrate()
        yield service


@pytest.fixture
def connect(empty_database_url: str, demo_service: JobSchedulerService) -> Connect:
    """The way to the demo's tables, which are there."""
    with Tables.open(empty_database_url, SCHEMA) as tables:
        tables.create()
    return partial(Tables.open, empty_database_url, SCHEMA)


@pytest.fixture
def tables(connect: Connect) -> Iterator[Tables]:
    """The demo's tables."""
    with connect() as opened:
        yield opened
