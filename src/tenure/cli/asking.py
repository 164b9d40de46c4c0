"""Bring the operations of those who look on and act to their end, and name who acts."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tenure import JobSchedulerService
from tenure.cli.options import is_text
from tenure.clock import boot_s
from tenure.operating import Action, OperatingStatements
from tenure.operations import Attempt

R = TypeVar("R")

_LABEL_LIMIT: Final = 256


def ask(service: JobSchedulerService, operation: Callable[..., Attempt[R]], *arguments: Any, **keywords: Any) -> R:
    """Perform an operation of `tenure.operating.operations` on a service's table."""
    statements = OperatingStatements(service.table)
    return service.perform(operation(statements, *arguments, **keywords, now_boot_s=boot_s()))


def who() -> str:
    """Name the person at this command line, as far as the machine knows: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    name = f"{user}@{socket.gethostname()}"
    return (name if is_text(name) else ascii(name))[:_LABEL_LIMIT]


def action(reason: str | None) -> Action:
    """Say that the person at this command line acts, and why."""
    return Action(by=who(), reason=reason)
