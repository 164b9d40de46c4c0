"""What operators see and do: overview, history, why a tick did not run, release, retry, skip (C11).

Values and pure judgement, for a command line, a page or a monitor. A service of either kind brings each operation to
its end::

    statements = OperatingStatements(service.table)
    seen = service.perform(operations.overview(statements, now_boot_s=boot_s()))

On `AsyncJobSchedulerService`, await it.
"""

from tenure.operating import operations
from tenure.operating.findings import Finding, Level
from tenure.operating.jobs import GRACE, schedule_of
from tenure.operating.statements import OperatingStatements
from tenure.operating.states import RunState, state_of
from tenure.operating.ticks import TickFacts, Why, WhyVerdict
from tenure.operating.values import (
    Action,
    ActionAnswer,
    ActionKind,
    ActionRecord,
    ActionVerdict,
    Health,
    HistoryFilter,
    JobOverview,
    LifeAttempt,
    LiveLease,
    Overview,
    RunGlance,
    RunLife,
    RunPage,
    Timeline,
)
from tenure.operating.why import explain

__all__ = [
    "GRACE",
    "Action",
    "ActionAnswer",
    "ActionKind",
    "ActionRecord",
    "ActionVerdict",
    "Finding",
    "Health",
    "HistoryFilter",
    "JobOverview",
    "Level",
    "LifeAttempt",
    "LiveLease",
    "OperatingStatements",
    "Overview",
    "RunGlance",
    "RunLife",
    "RunPage",
    "RunState",
    "TickFacts",
    "Timeline",
    "Why",
    "WhyVerdict",
    "explain",
    "operations",
    "schedule_of",
    "state_of",
]
