"""Start holding nodes in processes of their own, and hear what they say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeAlias


class Process:
    """A node in a process of its own, and the lines that it says."""

    def __init__(self, given: dict[str, Any]) -> None:
        command = [sys.executable, "-W", "error", "-m", "tests.scheduling.holding_node", json.dumps(given)]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def has_said(self, what: str) -> list[dict[str, Any]]:
        """Give the lines of one kind."""
        return [line for line in list(self.said) if line["what"] == what]

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        self.popen.send_signal(number)

    def end(self, limit_s: float = 20.0) -> int:
        """Wait for the end, and give the exit code."""
        code = self.popen.wait(limit_s)
        self._reader.join(5)
        return code

    def close(self) -> None:
        """End it, if it has not."""
        self.popen.kill()
        self.popen.wait(10)
        self._reader.join(5)
        assert self.popen.stdout is not None
        self.popen.stdout.close()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        self.said.extend(map(json.loads, self.popen.stdout))


StartProcess: TypeAlias = Callable[..., Process]
