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
from tenure.records import JobRun
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
    "JobRun",
    "JobSchedulerService",
    "JobSchedulerStatus",
    "JobSchedulerType",
    "JobServiceStateError",
    "LostJobLeaseError",
    "LostReason",
    "NotAcquiredReason",
    "OutcomeNotRecordedError",
    "RunExclusiveResult",
    "TenureError",
    "WaitTimeoutError",
    "external_job_id",
]
