"""Hold a lock on a file, which the kernel gives back however the process ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Literal

SUPERVISOR, IN_USE, START = "supervisor.lock", "in-use.lock", "start.lock"
_MODES = {"shared": fcntl.LOCK_SH, "alone": fcntl.LOCK_EX}


def hold(path: Path, mode: Literal["shared", "alone"], limit_s: float) -> int | None:
    """Return a descriptor that holds the lock until it is closed; None if it was not to be had within the limit."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline_s = time.monotonic() + limit_s
    while not _take(descriptor, mode):
        if time.monotonic() >= deadline_s:
            os.close(descriptor)
            return None
        time.sleep(0.02)
    return descriptor


def is_shared(path: Path) -> bool:
    """Say whether somebody holds the lock shared now."""
    descriptor = hold(path, "shared", 0)
    if descriptor is None:
        return False
    try:
        return not _take(descriptor, "alone")
    finally:
        os.close(descriptor)


def _take(descriptor: int, mode: Literal["shared", "alone"]) -> bool:
    try:
        fcntl.flock(descriptor, _MODES[mode] | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
