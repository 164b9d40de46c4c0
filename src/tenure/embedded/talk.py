"""Start a supervisor process and talk with it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tenure.embedded.plan import Plan, StopMode
from tenure.errors import EmbeddedPostgresError

_STOP_LIMIT_S = 60.0
# The packages are entered without running their __init__: the supervisor needs the standard library only, so it is up
# in a fraction of the time, stays small, and does not depend on the search path or the environment of its starter.
_ENTRY = """
import sys, types
for name, place in zip(("tenure", "tenure.embedded"), sys.argv[1:3]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [place]
from tenure.embedded.supervisor import main
sys.exit(main(sys.argv[3:]))
"""
_PACKAGES = [str(folder) for folder in reversed(Path(__file__).resolve().parents[:2])]


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Hold a supervisor, its two pipes, and the file that takes what it says on standard error."""

    process: subprocess.Popen[bytes]
    commands: IO[bytes]
    answers: IO[bytes]
    complaints: IO[bytes]

    @classmethod
    def start(cls, plan: Plan, inherited: tuple[int, ...] = ()) -> Supervisor:
        """Start a supervisor for the plan; its first answer is still to be read."""
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        process = subprocess.Popen(  # noqa: S603 - this very Python
            [sys.executable, "-I", "-S", "-c", _ENTRY, *_PACKAGES, plan.to_text(), *map(str, inherited)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            bufsize=0,
            cwd="/",
            start_new_session=True,
            pass_fds=inherited,
        )
        if process.stdin is None or process.stdout is None:
            raise AssertionError
        return cls(process, process.stdin, process.stdout, complaints)

    def answer(self) -> tuple[int, int]:
        """Wait for the server to be ready; return its port and its process id.

        Raises `EmbeddedPostgresError` with what the supervisor says if there is no server.
        """
        line = self.answers.readline()
        if not line:
            raise EmbeddedPostgresError(f"The supervisor of PostgreSQL ended without an answer.\n{self._complaint()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EmbeddedPostgresError(answer["error"])
        return answer["port"], answer["pid"]

    def restart(self, mode: StopMode) -> tuple[int, int]:
        """Stop the server in that mode and start it on the same port; return as `answer` does."""
        try:
            self.commands.write(f"restart {mode}\n".encode())
        except BrokenPipeError as error:
            raise EmbeddedPostgresError("The supervisor of PostgreSQL is gone; start the server anew.") from error
        return self.answer()

    def end(self, mode: StopMode = "fast") -> None:
        """Have the server stopped, and wait until it is."""
        with contextlib.suppress(BrokenPipeError):
            self.commands.write(f"stop {mode}\n".encode())
        self.release()

    def release(self) -> None:
        """Close our ends, which ends an owned server, and wait for the process that was started."""
        for stream in (self.commands, self.answers, self.complaints):
            stream.close()
        try:
            self.process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _complaint(self) -> str:
        self.complaints.seek(0)
        return self.complaints.read().decode(errors="replace").strip()[-4000:]
