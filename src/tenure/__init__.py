"""tenure: every scheduled run happens on one node."""

from tenure.errors import (
    DatabaseProblem,
    EmbeddedPostgresError,
    InvalidJobDataError,
    InvalidJobIdentityOptionsError,
    InvalidJobLeaseOptionsError,
    InvalidJobOptionsError,
    JobDatabaseError,
    JobServiceStateError,
    LostJobLeaseError,
    OutcomeNotRecordedError,
    TenureError,
    WaitTimeoutError,
)
from tenure.identity import external_job_id
from tenure.lease import (
    JobAcquired,
    JobAcquireResult,
    JobExecutionLease,
    JobLease,
    JobNotAcquired,
    LostReason,
    NotAcquiredReason,
    RunExclusiveResult,
)
from tenure.options import (
    DEFAULT_HEARTBEAT_MS,
    DEFAULT_LEASE_MS,
    JobAcquireOptions,
    JobSchedulerStatus,
    JobSchedulerType,
)
from tenure.records import RunRecord
from tenure.service import AsyncJobSchedulerService, JobSchedulerService

__all__ = [
    "DEFAULT_HEARTBEAT_MS",
    "DEFAULT_LEASE_MS",
    "AsyncJobSchedulerService",
    "DatabaseProblem",
    "EmbeddedPostgresError",
    "InvalidJobDataError",
    "InvalidJobIdentityOptionsError",
    "InvalidJobLeaseOptionsError",
    "InvalidJobOptionsError",
    "JobAcquireOptions",
    "JobAcquireResult",
    "JobAcquired",
    "JobDatabaseError",
    "JobExecutionLease",
    "JobLease",
    "JobNotAcquired",
    "JobSchedulerService",
    "JobSchedulerStatus",
    "JobSchedulerType",
    "JobServiceStateError",
    "LostJobLeaseError",
    "LostReason",
    "NotAcquiredReason",
    "OutcomeNotRecordedError",
    "RunExclusiveResult",
    "RunRecord",
    "TenureError",
    "WaitTimeoutError",
    "external_job_id",
]
