"""Play scenarios over each kind of database: wherever a scenario gives a service a URL, it gets that kind instead."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tenure import shells
from tenure.drivers import resolve, resolve_async
from tests.conformance.kinds import BLOCKING, ON_LOOP, Kind
from tests.support.nodes import AsyncNode, BlockingNode, MakeNode, Node

PLAYED = [kind for kind in BLOCKING if kind.name in ("psycopg-pool", "engine", "django")]
PLAYED_ON_LOOP = [kind for kind in ON_LOOP if kind.name != "string"]
NOT_FOR = {
    # an asyncpg pool alone renews on the loop (C5.3), see test_databases.py
    ("asyncpg-pool", "test_a_blocked_event_loop_keeps_its_run"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Play what runs on a loop over the kinds for loops, the rest over the others, what has nodes over both."""
    if metafunc.module.__name__ != "tests.conformance.test_scenarios":
        return
    name = metafunc.function.__name__
    if "make_node" in metafunc.fixturenames:
        metafunc.parametrize("make_node", [*PLAYED, *PLAYED_ON_LOOP], ids=_id, indirect=True)
        return
    on_loop = inspect.iscoroutinefunction(metafunc.function)
    fixture, kinds = ("loop_kind", PLAYED_ON_LOOP) if on_loop else ("blocking_kind", PLAYED)
    metafunc.fixturenames.insert(0, fixture)
    fitting = [kind for kind in kinds if (kind.name, name) not in NOT_FOR]
    metafunc.parametrize(fixture, fitting, ids=_id, indirect=True)


VARIANTS = 1
"""How many variants of a scenario are played over each kind: its parameters were gone through in `tests/scenarios`."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out further variants of a scenario that has many."""
    kept: dict[tuple[str, str], int] = {}
    chosen: list[pytest.Item] = []
    for item in items:
        counted = (item.nodeid.split("[")[0], "".join(_ids(item)))
        kept[counted] = kept.get(counted, 0) + 1
        if "test_scenarios" not in item.nodeid or kept[counted] <= VARIANTS:
            chosen.append(item)
    items[:] = chosen


def _ids(item: pytest.Item) -> list[str]:
    callspec = getattr(item, "callspec", None)
    return [_id(value) for value in callspec.params.values() if isinstance(value, Kind)] if callspec else []


def _id(kind: object) -> str:
    assert isinstance(kind, Kind)
    return f"{'loop' if kind.is_async else 'blocking'}-{kind.name}"


@pytest.fixture
def blocking_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kind]:
    """Have each blocking service stand on this kind of database."""
    closers: list[Any] = []
    yield _chosen(request.param, monkeypatch, closers)
    for close in closers:
        close()


@pytest.fixture
async def loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kind]:
    """Have each service on a loop stand on this kind of database."""
    closers: list[Any] = []
    yield _chosen(request.param, monkeypatch, closers)
    for close in closers:
        await close()


@pytest.fixture
async def make_node(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeNode]:
    """Make nodes of either kind of service on this kind of database."""
    closers: list[Any] = []
    kind = _chosen(request.param, monkeypatch, closers)
    made: list[Node] = []

    def make(database: Any) -> Node:
        made.append((AsyncNode if kind.is_async else BlockingNode)(database))
        return made[-1]

    yield make
    for node in made:
        await node.close()
    for close in closers:
        if kind.is_async:
            await close()
        else:
            close()


def _chosen(kind: Kind, monkeypatch: pytest.MonkeyPatch, closers: list[Any]) -> Kind:
    resolver: Any = resolve_async if kind.is_async else resolve

    def chosen(database: Any, table: Any) -> Any:
        if not isinstance(database, str):
            return resolver(database, table)
        made, close = kind.make(database)
        closers.append(close)
        return resolver(made, table)

    monkeypatch.setattr(shells, "resolve_async" if kind.is_async else "resolve", chosen)
    return kind
