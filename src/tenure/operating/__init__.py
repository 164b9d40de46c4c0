"""What operators see and do: overview, history, why a tick did not run, release, retry, skip (C11).

Values and pure judgement, for a command line, a page or a monitor. A service of either kind brings each operation to
its end::

    statements = OperatingStatements(service.table)
    seen = service.perform(operations.overview(statements, now_boot_s=boot_s()))

On `AsyncJobSchedulerService`, await it. `service.examine(examination.look)` is the doctor.
"""

from tenure.operating import examination, operations
from tenure.operating.diagnosis import judge, worst
from tenure.operating.findings import DoctorFacts, Finding, Level, Pooling, TableFacts
from tenure.operating.jobs import GRACE, schedule_of
from tenure.operating.meant import WORDS, is_time_of_day, tick_meant
from tenure.operating.operations import ALIVE
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
    "ALIVE",
    "GRACE",
    "WORDS",
    "Action",
    "ActionAnswer",
    "ActionKind",
    "ActionRecord",
    "ActionVerdict",
    "DoctorFacts",
    "Finding",
    "Health",
    "HistoryFilter",
    "JobOverview",
    "Level",
    "LifeAttempt",
    "LiveLease",
    "OperatingStatements",
    "Overview",
    "Pooling",
    "RunGlance",
    "RunLife",
    "RunPage",
    "RunState",
    "TableFacts",
    "TickFacts",
    "Timeline",
    "Why",
    "WhyVerdict",
    "examination",
    "explain",
    "is_time_of_day",
    "judge",
    "operations",
    "schedule_of",
    "state_of",
    "tick_meant",
    "worst",
]
