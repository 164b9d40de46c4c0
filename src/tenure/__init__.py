"""tenure: every scheduled run happens on one node."""

from tenure.attempts import JobAttempt, PreviousAttempt
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
    AsyncJobExecutionLease,
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
    "AsyncJobExecutionLease",
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
    "JobAttempt",
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
    "PreviousAttempt",
    "RunExclusiveResult",
    "RunRecord",
    "TenureError",
    "WaitTimeoutError",
    "external_job_id",
]
