"""An operator and a node on one database."""

from __future__ import annotations

import pytest

from tenure import JobSchedulerService
from tests.operating.operator import Operator
from tests.support.scheduling import TickNode


@pytest.fixture
def operator(rival: JobSchedulerService) -> Operator:
    """Who looks on and acts, from elsewhere."""
    return Operator(rival)


@pytest.fixture
def node(service: JobSchedulerService) -> TickNode:
    """A node of a scheduler, with one job."""
    made = TickNode(service)
    made.register()
    return made
