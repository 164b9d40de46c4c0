"""What the tests of the scheduler stand on: nodes of one kind at a time, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
