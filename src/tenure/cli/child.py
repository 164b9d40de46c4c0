"""The command: started in a process group of its own, waited for, and stopped when its lease is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tenure import LostReason
from tenure.cli.errors import ExitCode, say
from tenure.cli.signals import Signals, group_is_gone, send
from tenure.cli.stderr import StderrTail
from tenure.cli.terminal import Terminal

_GROUP_LOOK_EVERY_S = 0.02


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


def run_child(
    command: Sequence[str], environment: Mapping[str, str | bytes], watch: Watch, signals: Signals
) -> Ended:
    """Run the command to its end; a signal that asked us to end before it had begun keeps it from beginning."""
    if number := signals.asked_to_end():
        return Ended(ExitCode.SIGNALLED + number, "")
    tail = StderrTail()
    try:
        # The environment is typed as str or bytes as a whole; the C function takes each as it is.
        process = subprocess.Popen(command, stderr=tail.write_end, env=dict(environment), process_group=0)
    except OSError as error:
        return _not_started(command[0], error)
    tail.start()
    child = _Child(process, watch, signals)
    exit_code = child.wait()
    stderr = tail.finish()
    return Ended(ExitCode.SIGNALLED - exit_code if exit_code < 0 else exit_code, stderr, child.lost)


def _not_started(name: str, error: OSError) -> Ended:
    missing = isinstance(error, FileNotFoundError)
    message = f"{name}: {'command not found' if missing else f'cannot be executed: {error.strerror}'}"
    say(message)
    return Ended(ExitCode.NOT_FOUND if missing else ExitCode.NOT_EXECUTABLE, message)


class _Child:
    def __init__(self, process: subprocess.Popen[bytes], watch: Watch, signals: Signals) -> None:
        self.lost: LostReason | None = None
        self._process = process
        self._group = process.pid
        self._watch = watch
        self._signals = signals
        self._terminal = Terminal(self._group)
        self._kill_at_s = 0.0

    def wait(self) -> int:
        """Give the exit code, or minus the signal, once the command has ended."""
        self._signals.forward_to(self._group)
        while (exit_code := self._reap()) is None:
            self._terminal.lend()
            self._stop_if_lost()
            self._signals.wait(self._watch.look_every_s)
        self._signals.keep()
        self._process.returncode = exit_code
        self._terminal.ended(exit_code)
        if self.lost:
            self._stop_descendants()
        return exit_code

    def _reap(self) -> int | None:
        """Collect the command if it has ended; as PID 1 also every orphan that is ours by now."""
        whom = -1 if os.getpid() == 1 else self._group
        while True:
            pid, status = os.waitpid(whom, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return None
            if pid == self._group and os.WIFSTOPPED(status):
                self._terminal.stopped(os.WSTOPSIG(status))
            elif pid == self._group:
                return os.waitstatus_to_exitcode(status)

    def _stop_if_lost(self) -> None:
        now_s = time.monotonic()
        if self.lost is None:
            self.lost = self._watch.lost()
            if self.lost:
                self._kill_at_s = now_s + self._watch.grace.total_seconds()
                say(f"The lease is lost ({self.lost.value}). Stopping the command.")
                send(self._group, signal.SIGTERM)
                # One that is stopped would not hear it.
                send(self._group, signal.SIGCONT)
        elif now_s >= self._kill_at_s:
            send(self._group, signal.SIGKILL)

    def _stop_descendants(self) -> None:
        """Grant what the command left in its group the same grace: it works for the same lost run."""
        while not group_is_gone(self._group):
            if time.monotonic() >= self._kill_at_s:
                return send(self._group, signal.SIGKILL)
            self._reap_orphans()
            time.sleep(_GROUP_LOOK_EVERY_S)
        return None
