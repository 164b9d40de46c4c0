"""What the tests of the scheduler stand on: nodes of one kind at a time, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scheduling.holding import Process, StartProcess
from tests.support.schedulers import KINDS, Kind, MakeNode, nodes_of


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Which of the two schedulers the nodes are."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def make_node(database_url: str, kind: Kind) -> Iterator[MakeNode]:
    """Make nodes on a fresh database; they are stopped in the end."""
    with nodes_of(database_url, kind) as make:
        yield make


@pytest.fixture
def free(tmp_path: Path) -> Path:
    """The file that lets runs end."""
    return tmp_path / "free"


@pytest.fixture
def start(database_url: str, kind: Kind, free: Path) -> Iterator[StartProcess]:
    """Start a node in a process; it is ended in the end."""
    started: list[Process] = []

    def start(**given: Any) -> Process:
        told = {"lease_s": 60, "drain_s": 20, "schedule": "rare", "label": "node-a", "kind": kind, **given}
        started.append(Process({"url": database_url, "free": str(free), **told}))
        return started[-1]

    yield start
    for process in started:
        process.close()
