"""An operator at work: asks and acts through a service, as a command line or a page would."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from tenure import JobSchedulerService
from tenure.clock import boot_s
from tenure.operating import (
    Action,
    ActionAnswer,
    HistoryFilter,
    OperatingStatements,
    Overview,
    RunLife,
    RunPage,
    TickFacts,
    Timeline,
    Why,
    explain,
    operations,
)
from tenure.operations import Attempt

R = TypeVar("R")
NO_FILTER = HistoryFilter()


class Operator:
    """Ask and act; its service is not closed here."""

    def __init__(self, service: JobSchedulerService, name: str = "alice") -> None:
        self.service = service
        self.name = name
        self.statements = OperatingStatements(service.table)

    def action(self, reason: str | None = "because") -> Action:
        return Action(by=self.name, reason=reason)

    def ask(self, operation: Callable[..., Attempt[R]], *arguments: Any, **keywords: Any) -> R:
        return self.service.perform(operation(self.statements, *arguments, **keywords, now_boot_s=boot_s()))

    def overview(self, **keywords: Any) -> Overview:
        return self.ask(operations.overview, **keywords)

    def history(self, wanted: HistoryFilter = NO_FILTER, **keywords: Any) -> RunPage:
        return self.ask(operations.history, wanted, **keywords)

    def timeline(self, since: datetime, until: datetime, **keywords: Any) -> Timeline:
        return self.ask(operations.timeline, since, until, **keywords)

    def life(self, run: UUID | str) -> RunLife:
        found = self.ask(operations.life, run)
        assert found is not None
        return found

    def facts(self, code: str, tick: datetime) -> TickFacts:
        return self.ask(operations.tick_facts, code, tick)

    def why(self, code: str, tick: datetime) -> Why:
        return explain(self.facts(code, tick))

    def release(self, run: UUID, action: Action | None = None, **keywords: Any) -> ActionAnswer:
        return self.ask(operations.release, run, action or self.action(), **keywords)

    def retry(self, run: UUID, action: Action | None = None, **keywords: Any) -> ActionAnswer:
        return self.ask(operations.retry, run, action or self.action(), **keywords)

    def skip(self, code: str, tick: datetime, action: Action | None = None, **keywords: Any) -> ActionAnswer:
        return self.ask(operations.skip, code, tick, action or self.action(), **keywords)

    def trigger(self, code: str, action: Action | None = None, **keywords: Any) -> ActionAnswer:
        return self.ask(operations.trigger, code, action or self.action(), **keywords)

    def pause(self, code: str, action: Action | None = None) -> ActionAnswer:
        return self.ask(operations.pause, code, action or self.action())

    def resume(self, code: str, action: Action | None = None) -> ActionAnswer:
        return self.ask(operations.resume, code, action or self.action())
