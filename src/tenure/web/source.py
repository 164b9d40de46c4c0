"""Ask a service of either kind what operators ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tenure.clock import boot_s
from tenure.operating import OperatingStatements
from tenure.operations import Attempt
from tenure.scheduling.ports import LoopPort, Port, ThreadPort
from tenure.service import AsyncJobSchedulerService, JobSchedulerService

R = TypeVar("R")


class Source:
    """Bring operations of `tenure.operating` to their end from a loop; the service is not closed here."""

    def __init__(self, service: AsyncJobSchedulerService | JobSchedulerService) -> None:
        self._port: Port = LoopPort(service) if isinstance(service, AsyncJobSchedulerService) else ThreadPort(service)
        self.statements = OperatingStatements(service.table)

    async def ask(self, operation: Callable[..., Attempt[R]], *arguments: Any, **keywords: Any) -> R:
        """Ask or act once. Raises `JobDatabaseError`, and `InvalidJobOptionsError` before any SQL."""
        attempt = operation(self.statements, *arguments, **keywords, now_boot_s=boot_s())
        return await self._port.perform(attempt)
