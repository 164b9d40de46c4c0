"""Many jobs that are due at once, in short; `make chaos` measures 500 (C5.4, C10.6)."""

from __future__ import annotations

import pytest

from tests.scheduling.burst import NODES, burst


@pytest.mark.timeout(180)
def test_a_burst_is_shared_and_starves_no_lease(empty_database_url: str) -> None:
    """C5.4, C10.6: each of 200 runs once, every node takes some, and none loses a lease of two seconds meanwhile."""
    seen = burst(empty_database_url, 200)
    assert len(seen.lags_s) == 200
    assert len(seen.by_node) == NODES
    assert min(seen.by_node) > 0
    assert seen.lost == 0
