"""Signals, on their way to the command: noted before it runs, handed on while it does."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from types import FrameType

from tenure.cli.errors import ExitCode, say

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Those that ask a process to end."""
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)


class Signals:
    """Take the signals of this process, from `listen` to its end.

    As PID 1 a process is only sent signals that it has handlers for, so these serve there too. A signal that was
    ignored when we were started (nohup) stays ignored, for us and for the command.
    """

    def __init__(self) -> None:
        self._group: int | None = None
        self._noted: list[int] = []
        self._wake_read, self._wake_write = os.pipe()

    def listen(self) -> None:
        """Take signals from now on."""
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)
        # Only so that it wakes us: a signal without a handler does not.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def asked_to_end(self) -> int | None:
        """Give the first signal that asked us to end before the command had begun."""
        return next((number for number in self._noted if number in ENDING), None)

    def forward_to(self, group: int) -> None:
        """Hand on to that process group whatever comes, and what came before."""
        self._group = group
        noted, self._noted = self._noted, []
        for number in noted:
            send(group, number)

    def keep(self) -> None:
        """Hand on nothing more: the command has ended, and its number may be somebody else's soon."""
        self._group = None

    def wait(self, limit_s: float) -> None:
        """Wait for a signal, but not longer than that; one that came since the last wait counts."""
        select.select([self._wake_read], [], [], limit_s)
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self._group is not None:
            send(self._group, number)
        elif number in ENDING and self.asked_to_end():
            say(f"Given up at once on {_name(number)}, the second signal; the lease of the run ends by itself.")
            os._exit(ExitCode.SIGNALLED + number)
        else:
            self._noted.append(number)
            if number in ENDING:
                say(f"{_name(number)}: ending as soon as the database has answered; a second signal ends at once.")


def send(group: int, number: int) -> None:
    """Send a signal to a process group; one that is gone needs none."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def group_is_gone(group: int) -> bool:
    """Say whether nobody is left in a process group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _name(number: int) -> str:
    return signal.Signals(number).name
