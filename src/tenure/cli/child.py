"""The command: started, waited for, and stopped when its lease is lost.

It gets a session of its own, so that a signal reaches it once, with all its descendants, and so that it cannot be
stopped for reading a terminal from the background. Where stdin is our terminal it stays in our process group instead:
then ^C, ^Z, `fg`, pagers and password prompts are as without us, since the kernel and the shell treat us as one job.
The price is that signals from elsewhere go to the command only, not to its descendants.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from tenure import LostReason
from tenure.cli.errors import ExitCode, say
from tenure.cli.signals import Receiver, Signals
from tenure.cli.stderr import StderrTail

_STDIN = 0
_DESCENDANTS_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Ended:
    """Say how the command ended; `lost` says that it was stopped, and why."""

    exit_code: int
    """As a shell gives it: 128 + N for signal N, 126 and 127 for a command that could not be started."""
    stderr: str
    lost: LostReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Say how to look after the command."""

    lost: Callable[[], LostReason | None]
    look_every_s: float
    grace: timedelta


def run_child(command: Sequence[str], environment: Mapping[str, str], watch: Watch, signals: Signals) -> Ended:
    """Run the command to its end; a signal that asked us to end before it had begun keeps it from beginning."""
    if number := signals.asked_to_end():
        return Ended(ExitCode.SIGNALLED + number, "")
    tail = StderrTail()
    shared = _stdin_is_our_terminal()
    try:
        process = subprocess.Popen(  # noqa: S603 - to run what the user asks for is the purpose
            command, stderr=tail.write_end, env=environment, start_new_session=not shared
        )
    except OSError as error:
        return _not_started(command[0], error)
    tail.start()
    child = _Child(process, Receiver(process.pid, shared), watch, signals)
    exit_code = child.wait()
    stderr = tail.finish()
    return Ended(ExitCode.SIGNALLED - exit_code if exit_code < 0 else exit_code, stderr, child.lost)


def _stdin_is_our_terminal() -> bool:
    with suppress(OSError):
        return os.tcgetpgrp(_STDIN) > 0
    return False


def _not_started(name: str, error: OSError) -> Ended:
    missing = isinstance(error, FileNotFoundError)
    message = f"{name}: {'command not found' if missing else f'cannot be executed: {error.strerror}'}"
    say(message)
    return Ended(ExitCode.NOT_FOUND if missing else ExitCode.NOT_EXECUTABLE, message)


class _Child:
    def __init__(self, process: subprocess.Popen[bytes], receiver: Receiver, watch: Watch, signals: Signals) -> None:
        self.lost: LostReason | None = None
        self._process = process
        self._receiver = receiver
        self._watch = watch
        self._signals = signals
        self._kill_at_s = 0.0

    def wait(self) -> int:
        """Give the exit code, or minus the signal, once the command has ended."""
        self._signals.forward_to(self._receiver)
        while (exit_code := self._reap()) is None:
            self._stop_if_lost()
            self._signals.wait(self._watch.look_every_s)
        self._signals.keep()
        self._process.returncode = exit_code  # Popen need not look for a process that we have collected
        if self.lost:
            self._stop_descendants()
        return exit_code

    def _reap(self) -> int | None:
        """Collect the command if it has ended; as PID 1 also every orphan, which is ours by then."""
        whom = -1 if os.getpid() == 1 else self._process.pid
        while True:
            pid, status = os.waitpid(whom, os.WNOHANG)
            if pid == 0:
                return None
            if pid == self._process.pid:
                return os.waitstatus_to_exitcode(status)

    def _stop_if_lost(self) -> None:
        if self.lost:
            if time.monotonic() >= self._kill_at_s:
                self._receiver.send(signal.SIGKILL)
        elif lost := self._watch.lost():
            self.lost = lost
            self._kill_at_s = time.monotonic() + self._watch.grace.total_seconds()
            self._receiver.send(signal.SIGTERM)
            self._receiver.send(signal.SIGCONT)  # a command that is stopped would not hear the other
            say(f"The lease is lost ({lost.value}). Stopping the command.")

    def _stop_descendants(self) -> None:
        """Grant what the command left behind the same grace: it works for the same lost run."""
        while self._receiver.has_descendants():
            if time.monotonic() >= self._kill_at_s:
                return self._receiver.send(signal.SIGKILL)
            _reap_orphans()
            time.sleep(_DESCENDANTS_LOOK_EVERY_S)
        return None


def _reap_orphans() -> None:
    if os.getpid() == 1:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
