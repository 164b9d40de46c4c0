"""When jobs are due: schedules as values (C10.1 to C10.3)."""

from tenure.scheduling.cron import Cron
from tenure.scheduling.every import Every
from tenure.scheduling.instants import EARLY_TOLERANCE, run_key
from tenure.scheduling.schedule import Schedule

__all__ = ["EARLY_TOLERANCE", "Cron", "Every", "Schedule", "run_key"]
