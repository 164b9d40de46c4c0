"""Three nodes that are killed and restarted while they tick: the short form of `make chaos` (C7.2, C10.4, C10.8)."""

from __future__ import annotations

import pytest

from tests.scheduling.fleet import fleet_on, play, problems, roll
from tests.support.rows import execute
from tests.support.servers import create_database, start_test_server

pytestmark = pytest.mark.timeout(180)


def test_every_tick_has_one_effect_though_nodes_and_the_server_die() -> None:
    """C7.2, C10.4: one success or a row that says why not, and no effect twice."""
    with start_test_server() as server:
        url = create_database(server, "fleet")
        with fleet_on(url, jobs=3) as fleet:
            play(fleet, server, seconds=10, fault_every_s=2.0, restarts=1)
        assert fleet.faults["server restarted"] == 1
        assert fleet.faults["SIGKILL"] + fleet.faults["SIGTERM"] >= 4
        assert problems(url) == []
        assert execute(url, "SELECT count(*) >= 20 FROM effects") == [(True,)]


def test_rolling_restarts_lose_no_tick_and_double_none(empty_database_url: str) -> None:
    """C10.8: each close to a tick, while runs are under way."""
    with fleet_on(empty_database_url, jobs=3, work_s=0.5) as fleet:
        roll(fleet, restarts=12)
    assert fleet.faults == {"SIGTERM": 12}
    assert problems(empty_database_url) == []


def test_the_judge_sees_what_is_wrong(empty_database_url: str) -> None:
    """What is asserted above can fail: a tick without a row, an effect that is doubled, and one that is lost."""
    with fleet_on(empty_database_url, jobs=1):
        pass
    assert problems(empty_database_url) == []
    ((tick,),) = execute(empty_database_url, "SELECT min(tick) FROM effects")
    execute(
        empty_database_url, "INSERT INTO effects SELECT code, tick, node, attempt FROM effects WHERE tick = %s", tick
    )
    assert problems(empty_database_url) == [f"job-0 at {tick} had its effect 2 times"]
    execute(empty_database_url, "DELETE FROM effects WHERE tick = %s", tick)
    assert problems(empty_database_url) == [f"job-0 at {tick} ended None, and its effect is there: False"]
