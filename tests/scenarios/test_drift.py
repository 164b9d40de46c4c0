"""What `check_schema` finds beyond columns and unique indexes (C9.1)."""

from __future__ import annotations

import pytest

from tenure import JobSchedulerService
from tests.support.rows import TABLE, execute


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ('DROP INDEX "job-scheduler_code_idx"', 'The index "job-scheduler_code_idx" is missing'),
        ('DROP INDEX "job-scheduler_unfinished_idx"', 'The index "job-scheduler_unfinished_idx" is missing'),
        (f'ALTER TABLE {TABLE} ALTER COLUMN "fencingToken" DROP IDENTITY', 'The column "fencingToken" is no identity'),
        (f'ALTER TABLE {TABLE} ALTER COLUMN "createdAt" DROP DEFAULT', 'The column "createdAt" has lost its default'),
        (f"ALTER TABLE {TABLE} RESET (fillfactor)", "Renewals have no room"),
        (f'ALTER TABLE {TABLE} ADD COLUMN "tenant" text NOT NULL', 'The column "tenant" is not ours and must be given'),
    ],
)
def test_check_finds_what_slows_or_stops_an_insert(
    database_url: str, service: JobSchedulerService, damage: str, said: str
) -> None:
    """C9.1: what an acquire or a renewal relies on beyond columns and unique indexes."""
    assert service.check_schema() == []
    execute(database_url, damage)
    assert [fault for fault in service.check_schema() if fault.startswith(said)], service.check_schema()
