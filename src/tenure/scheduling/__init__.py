"""Ticks that run once, and that somebody finishes (C10)."""

from tenure.scheduling.cron import Cron
from tenure.scheduling.every import Every
from tenure.scheduling.instants import EARLY_TOLERANCE, run_key
from tenure.scheduling.schedule import Schedule

__all__ = ["EARLY_TOLERANCE", "Cron", "Every", "Schedule", "run_key"]
