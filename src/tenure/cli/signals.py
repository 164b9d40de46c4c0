"""Signals, on their way to the command: noted before it runs, handed on while it does."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from tenure.cli.errors import ExitCode, say

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Those that ask a process to end."""
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True)
class Receiver:
    """Name whom signals go to: a whole process group, or only the command where it shares our group."""

    pid: int
    shares_our_group: bool

    def send(self, number: int) -> None:
        """Send a signal; who is gone needs none."""
        with suppress(ProcessLookupError, PermissionError):
            if self.shares_our_group:
                os.kill(self.pid, number)
            else:
                os.killpg(self.pid, number)

    def forward(self, number: int) -> None:
        """Hand on a signal that came to us; a terminal sends its own to everybody in our group."""
        if not (self.shares_our_group and number in _FROM_TERMINAL):
            self.send(number)

    def has_descendants(self) -> bool:
        """Say whether anybody is left of the group of a command that has ended."""
        if self.shares_our_group:
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class Signals:
    """Take the signals of this process, from `listen` to its end.

    As PID 1 a process is only sent signals that it has handlers for, so these serve there too. A signal that was
    ignored when we were started (nohup) stays ignored, for us and for the command.
    """

    def __init__(self) -> None:
        self._receiver: Receiver | None = None
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
        signal.signal(signal.SIGCHLD, _only_wake)

    def asked_to_end(self) -> int | None:
        """Give the first signal that asked us to end and was not handed on."""
        return next((number for number in self._noted if number in ENDING), None)

    def forward_to(self, receiver: Receiver) -> None:
        """Hand on whatever comes, and what came before."""
        self._receiver = receiver
        noted, self._noted = self._noted, []
        for number in noted:
            receiver.forward(number)

    def keep(self) -> None:
        """Hand on nothing more: the command has ended, and its number may be somebody else's soon."""
        self._receiver = None

    def wait(self, limit_s: float) -> None:
        """Wait for a signal, but not longer than that; one that came since the last wait counts."""
        select.select([self._wake_read], [], [], limit_s)
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self._receiver:
            self._receiver.forward(number)
        elif number in ENDING and self.asked_to_end():
            say(f"Given up at once on {_name(number)}, the second signal; the lease of the run ends by itself.")
            os._exit(ExitCode.SIGNALLED + number)
        else:
            self._noted.append(number)
            if number in ENDING:
                say(f"{_name(number)}: ending as soon as the database has answered; a second signal ends at once.")


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: a signal that has no handler does not end a wait."""


def _name(number: int) -> str:
    return signal.Signals(number).name
