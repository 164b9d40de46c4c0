"""Read postmaster.pid, and tell a server of ours from what a crash left behind.

Lines: process id, data directory, start time, port, socket folder, listen address, shared memory, status
(https://www.postgresql.org/docs/current/storage-file-layout.html).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tenure.embedded.processes import command_of, is_alive
from tenure.errors import EmbeddedPostgresError

_ORPHAN_LIMITS_S = ((signal.SIGINT, 15.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0))


@dataclass(frozen=True, slots=True)
class Postmaster:
    """Hold what postmaster.pid says; all zero and empty if there is no such file."""

    pid: int = 0
    port: int = 0
    status: str = ""

    @classmethod
    def read(cls, cluster: Path) -> Postmaster:
        """Read the file of a cluster, which may be half written."""
        try:
            lines = (cluster / "postmaster.pid").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return cls()
        lines += [""] * (8 - len(lines))
        return cls(_number(lines[0]), _number(lines[3]), lines[7].strip())

    def is_ready(self, pid: int) -> bool:
        """Say whether the server of that process id takes connections."""
        return self.pid == pid and self.status == "ready"

    def serves(self, cluster: Path) -> bool:
        """Say whether the process is a PostgreSQL on this very cluster."""
        command = command_of(self.pid) if self.pid > 0 else []
        return f"/postgres -D {cluster} -h " in " ".join(command)

    def clear_the_way(self, cluster: Path) -> None:
        """End an orphan on the cluster, or remove a file whose process id lives again as something else.

        For the holder of the supervisor's lock: a server that runs then has lost its supervisor.
        A file whose process is gone is left to PostgreSQL, which also looks for the old one's shared memory.
        """
        if self.serves(cluster):
            self._end(cluster)
        elif self.pid > 0 and is_alive(self.pid):
            (cluster / "postmaster.pid").unlink(missing_ok=True)

    def _end(self, cluster: Path) -> None:
        for number, limit_s in _ORPHAN_LIMITS_S:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            deadline_s = time.monotonic() + limit_s
            while self.serves(cluster):
                if time.monotonic() > deadline_s:
                    break
                time.sleep(0.02)
            else:
                return
        raise EmbeddedPostgresError(
            f"A PostgreSQL without an owner holds {cluster}, and process {self.pid} does not end."
        )


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0
