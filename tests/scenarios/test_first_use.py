"""The first callers of a service, when there is nobody to answer."""

from __future__ import annotations

import threading
import time

import pytest

from tenure import JobDatabaseError, JobSchedulerService
from tests.support.proxy import FaultProxy


@pytest.mark.parametrize("callers", [4])
def test_first_callers_in_a_black_hole_do_not_wait_for_one_another(database_url: str, callers: int) -> None:
    """C11: each hears within its own limit that the database cannot be reached."""
    took: list[float] = []

    def ask(service: JobSchedulerService) -> None:
        began = time.monotonic()
        with pytest.raises(JobDatabaseError):
            service.find_run("x")
        took.append(time.monotonic() - began)

    with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as service:
        proxy.black_hole()
        threads = [threading.Thread(target=ask, args=(service,)) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(took) == callers
    assert max(took) < 1.5 * min(took)
