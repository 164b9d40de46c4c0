"""Who fails when: the same in every process, and always playable."""

from __future__ import annotations

import pytest

from tenure.demo.plan import MAX_NODES, MIN_NODES, MIN_TICKS, Plan


@pytest.mark.parametrize("nodes", [MIN_NODES, 3, MAX_NODES])
@pytest.mark.parametrize("ticks", [MIN_TICKS, 6, 10, 60])
def test_every_seed_strikes_two_nodes_at_two_ticks_that_there_are(nodes: int, ticks: int) -> None:
    """Kill one node, and stop another one later, with ticks left."""
    for seed in range(200):
        plan = Plan(nodes, ticks, seed)
        assert plan == Plan(nodes, ticks, seed)
        assert {plan.kill_node, plan.stop_node} <= set(range(1, nodes + 1))
        assert plan.kill_node != plan.stop_node
        assert 2 <= plan.kill_tick <= plan.stop_tick - 2
        assert plan.stop_tick <= ticks - 1
        assert plan.favourite(plan.kill_tick) == plan.kill_node
        assert plan.favourite(plan.stop_tick) == plan.stop_node
        assert [n for n in range(1, nodes + 1) if plan.patience_s(n, 1) == 0] == [plan.favourite(1)]


def test_seeds_differ() -> None:
    """Let the seed choose both nodes and ticks."""
    plans = [Plan(3, 20, seed) for seed in range(50)]
    assert len({(plan.kill_node, plan.stop_node) for plan in plans}) == 6
    assert len({plan.kill_tick for plan in plans}) > 2
    assert len({plan.stop_tick for plan in plans}) > 5
