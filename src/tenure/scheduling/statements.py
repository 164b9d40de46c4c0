"""The statements of the scheduler, for one table of runs."""

from __future__ import annotations

from tenure.statements import Table


class SchedulingStatements:
    """Hold the statements of `sql/scheduling.sql`, ready to be sent; `service.table` names the table."""

    def __init__(self, table: Table) -> None:
        self.table = table
