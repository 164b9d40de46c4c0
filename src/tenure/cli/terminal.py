"""A terminal, lent to the command.

The command has a process group of its own, so that a signal reaches it once and with all its descendants. A terminal
lets only one group read: it is lent to the command for as long as it runs, as a shell does. What the keys ^C, ^\\ and
^Z do to that group is done to ours afterwards, since the shell or script that waits for us acts on it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from tenure.cli.signals import send

STDIN = 0
_KEYS = (signal.SIGINT, signal.SIGQUIT)
_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Terminal:
    """Lend our terminal to one process group."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._was_lent = False

    def lend(self) -> None:
        """Lend the terminal whenever it is ours to lend: at the start, and when a shell has given it back to us."""
        if _foreground() == os.getpgrp():
            os.tcsetpgrp(STDIN, self._group)
            self._was_lent = True
            # It may have been stopped for reading too early.
            send(self._group, signal.SIGCONT)

    def stopped(self, number: int) -> None:
        """Stop ourselves as the command was stopped, so that the shell sees it; go on with it when we do."""
        if _foreground() is None or number not in _STOPS:
            return
        self._take_back()
        os.killpg(os.getpgrp(), number)
        self.lend()
        send(self._group, signal.SIGCONT)

    def ended(self, exit_code: int) -> None:
        """Take the terminal back, and pass on the key that ended the command."""
        self._take_back()
        if self._was_lent and -exit_code in _KEYS:
            _without(-exit_code, lambda: os.killpg(os.getpgrp(), -exit_code))

    def _take_back(self) -> None:
        if _foreground() == self._group:
            # Asking for the terminal from the background stops whoever does not ignore this.
            _without(signal.SIGTTOU, lambda: os.tcsetpgrp(STDIN, os.getpgrp()))


def _foreground() -> int | None:
    """Give the group that may read our terminal; `None` if stdin is none of ours."""
    with suppress(OSError):
        return os.tcgetpgrp(STDIN)
    return None


def _without(number: int, action: Callable[[], None]) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        action()
    finally:
        signal.signal(number, before)
