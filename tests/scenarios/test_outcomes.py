"""What may be recorded, and what a callback records by itself (C6.1, C6.2), through both services."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tenure import InvalidJobDataError, JobAcquireOptions, JobExecutionLease, JobLease, JobSchedulerService
from tests.support.nodes import AsyncNode, BlockingNode, MakeNode, Node
from tests.support.rows import row_of


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": 6_000, **given})


@pytest.fixture(params=[BlockingNode, AsyncNode], ids=["blocking", "async"])
async def make_node(request: pytest.FixtureRequest) -> AsyncIterator[MakeNode]:
    """Make nodes of one kind on whatever database is given."""
    made: list[Node] = []

    def make(database: Any) -> Node:
        made.append(request.param(database))
        return made[-1]

    yield make
    for node in made:
        await node.close()


def _self_reference() -> dict[str, Any]:
    data: dict[str, Any] = {}
    data["self"] = data
    return data


BAD_DATA: dict[str, Any] = {
    "NaN": {"x": float("nan")},
    "infinity": {"x": [float("-inf")]},
    "NUL": {"x": "a\0b"},
    "NUL in a key": {"a\0b": 1},
    "lone surrogate": {"x": "\ud800"},
    "lone surrogate in a key": {"\udfff": 1},
    "more than 1 MiB": {"x": "y" * (1024 * 1024)},
    "set": {"x": {1}},
    "bytes": {"x": b"y"},
    "number as key": {1: "x"},
    "None as key, deep": {"x": [{None: 1}]},
    "itself": _self_reference(),
    "list": [1],
    "text": "{}",
    "number": 7,
}


class TestData:
    @pytest.mark.parametrize("bad", BAD_DATA.values(), ids=BAD_DATA)
    async def test_bad_data_is_refused_before_any_sql(self, make_node: MakeNode, database_url: str, bad: Any) -> None:
        """C6.2: InvalidJobDataError where no server is; and where one is, the run is left as it was."""
        nowhere = make_node("host=127.0.0.1 port=1")
        node = make_node(database_url)
        lease = await node.acquire(options())
        before = row_of(database_url, lease.id)
        for how in ("complete", "fail", "release"):
            with pytest.raises(InvalidJobDataError):
                await nowhere.settle(how, JobLease(uuid4(), uuid4()), bad)
            with pytest.raises(InvalidJobDataError):
                await node.settle(how, lease, bad)
        assert row_of(database_url, lease.id) == before
        assert await node.settle("complete", lease, {"good": [1, "é", None, {"\\u0000": 0.5}]}) is True
        assert row_of(database_url, lease.id)["data"] == {"good": [1, "é", None, {"\\u0000": 0.5}]}

    async def test_exactly_1_mib_is_stored(self, make_node: MakeNode, database_url: str) -> None:
        """C6.2: the limit itself is allowed; one byte more is not."""
        node = make_node(database_url)
        lease = await node.acquire(options())
        room = 1024 * 1024 - len('{"x":""}')
        with pytest.raises(InvalidJobDataError, match="1048577 bytes"):
            await node.settle("complete", lease, {"x": "y" * (room + 1)})
        assert await node.settle("complete", lease, {"x": "é" * (room // 2)}) is True
        assert row_of(database_url, lease.id)["data"] == {"x": "é" * (room // 2)}


class TestInsideTheCallback:
    @pytest.mark.parametrize(
        ("by", "how", "status"),
        [
            *itertools.chain.from_iterable(
                [(by, "complete", "SUCCESS"), (by, "fail", "FAIL"), (by, "release", "FAIL")]
                for by in ("its lease", "a copy made by hand")
            ),
            # a failure recorded by somebody else is a loss: released
            ("another service", "complete", "SUCCESS"),
        ],
    )
    async def test_a_run_settled_by_its_callback_stays_so(
        self, make_node: MakeNode, database_url: str, rival: JobSchedulerService, how: str, status: str, by: str
    ) -> None:
        """C6.1: run_exclusive returns normally, and the row keeps the outcome and data that the callback gave it."""
        if isinstance(node := make_node(database_url), AsyncNode):
            service = node.service

            async def awaited(lease: JobExecutionLease) -> str:
                if by == "another service":
                    assert getattr(rival, how)(_copy(lease), {"by": by})
                else:
                    used = lease if by == "its lease" else _copy(lease)
                    assert await getattr(service, how)(used, {"by": by})
                return "result"

            outcome = await service.run_exclusive(options(), awaited)
        else:
            assert isinstance(node, BlockingNode)
            blocking = node.service

            def callback(lease: JobExecutionLease) -> str:
                used = lease if by == "its lease" else _copy(lease)
                assert getattr(rival if by == "another service" else blocking, how)(used, {"by": by})
                return "result"

            outcome = await node.run(options(), callback)
        assert outcome.result == "result"
        row = row_of(database_url, options().lock_key)
        assert (row["status"], row["data"]) == (status, {"by": by})


def _copy(lease: JobLease) -> JobLease:
    return JobLease(UUID(str(lease.id)), str(lease.owner_token))
