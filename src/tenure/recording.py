"""Decide what is recorded of a callback that ended: nothing here writes it."""

from __future__ import annotations

import logging
from typing import Any, Final

from tenure.data import describe_error, encode_data
from tenure.endings import Ending, EndingOf
from tenure.lease import JobExecutionLease, LostReason

logger = logging.getLogger("tenure")

LOST_FAIL_LIMIT_S: Final = 1.0
"""How long FAIL is tried once the lease is lost to silence: the caller waits for that news."""


def failure_to_record(lease: JobExecutionLease, error: BaseException) -> tuple[str | None, float | None] | None:
    """Give what to record for a callback that failed, and for how long to try; `None` if the row is not ours."""
    hold = lease.hold
    if hold is None or hold.settled is not None:
        return None
    reason = hold.look()
    if reason in (LostReason.TAKEN_OVER, LostReason.ROW_GONE, LostReason.RELEASED):
        return None
    return encode_data(describe_error(error)), LOST_FAIL_LIMIT_S if reason else None


def ending_of(ending: EndingOf | None, error: BaseException | None, value: Any) -> tuple[Ending, str | None]:
    """Ask how a run ended, and give its data as text; what cannot be told or stored never costs the outcome."""
    if ending is None:
        return Ending(), None
    try:
        told = ending(error, value)
        return told, encode_data(told.data)
    except Exception as problem:  # noqa: BLE001 - the caller's own code
        logger.warning("How a run ended cannot be recorded in detail: %s", describe_error(problem)["error"])
        return Ending(), None


def needs_success(lease: JobExecutionLease) -> bool:
    """Say whether SUCCESS is still to be recorded: not if the callback settled the run itself."""
    return lease.hold is None or lease.hold.settled is None
