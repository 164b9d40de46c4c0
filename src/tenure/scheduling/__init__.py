"""Ticks that run once, and that somebody finishes (C10)."""

from tenure.scheduling.cron import Cron
from tenure.scheduling.every import Every
from tenure.scheduling.instants import EARLY_TOLERANCE, run_key
from tenure.scheduling.jobs import Job, Retry
from tenure.scheduling.retention import Retention
from tenure.scheduling.run import AsyncJobRun, JobRun
from tenure.scheduling.schedule import Schedule
from tenure.scheduling.scheduler import AsyncScheduler, Scheduler
from tenure.scheduling.values import Outcome
from tenure.scheduling.written import schedule_from

__all__ = [
    "EARLY_TOLERANCE",
    "AsyncJobRun",
    "AsyncScheduler",
    "Cron",
    "Every",
    "Job",
    "JobRun",
    "Outcome",
    "Retention",
    "Retry",
    "Schedule",
    "Scheduler",
    "run_key",
    "schedule_from",
]
