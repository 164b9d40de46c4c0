"""Start the command line as a process of its own, and look at what it leaves."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.rows import execute
from tests.support.waiting import eventually

TENURE = [sys.executable, "-W", "error", "-m", "tenure"]
LIMIT_S = 60.0
Process: TypeAlias = "subprocess.Popen[bytes]"


@dataclass(frozen=True)
class Finished:
    """Hold what a command line said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Read stdout as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Tenure:
    """Run `tenure` with one database in its environment, and nothing else that names one."""

    url: str | None
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """Give the environment of the process."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PG", "TENURE_", "PYTEST")) and name not in ("DATABASE_URL", "NO_COLOR")
        }
        return {**kept, **({"TENURE_DATABASE_URL": self.url} if self.url else {}), **self.more}

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> Finished:
        """Run to the end; no command line ever shows a traceback."""
        done = subprocess.run(
            [*TENURE, *arguments],
            env=self.environment,
            capture_output=True,
            input=stdin or b"",
            timeout=LIMIT_S,
            check=False,
        )
        finished = Finished(done.returncode, done.stdout.decode(), done.stderr.decode(errors="surrogateescape"))
        assert "Traceback" not in finished.err
        return finished

    @contextmanager
    def start(self, *arguments: str, before: Sequence[str] = (), **options: Any) -> Generator[Process]:
        """Start a command line; it is killed if the test leaves it running."""
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(
            [*before, *TENURE, *arguments], env=self.environment, **{**streams, **options}
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def finished(process: Process) -> Finished:
    """Wait for the end of a command line that was started."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert b"Traceback" not in (err or b"")
    return Finished(process.returncode, (out or b"").decode(), (err or b"").decode(errors="replace"))


def shell(script: str) -> list[str]:
    """Give a command that runs a shell script."""
    return ["--", "sh", "-c", script]


def named(path: Path) -> str:
    """Give a path for a shell script."""
    return shlex.quote(str(path))


def wait_for(path: Path) -> str:
    """Wait until a file has a whole line, and give its text."""
    return eventually(lambda: path.exists() and path.read_text().endswith("\n") and path.read_text(), 20.0) or ""


def only_row(url: str) -> dict[str, Any]:
    """Give the one row of the table, the columns that tests look at."""
    rows = execute(url, 'SELECT "status"::text, "attempt", "data", "name", "leaseMs", "id" FROM public."job-scheduler"')
    assert len(rows) == 1
    return dict(zip(("status", "attempt", "data", "name", "lease_ms", "id"), rows[0], strict=True))


def owner_token(url: str) -> str:
    """Give the secret of the one row, which nobody may show."""
    [(token,)] = execute(url, 'SELECT "ownerToken"::text FROM public."job-scheduler"')
    return str(token)


def take_over(url: str) -> None:
    """Take the one run away from its holder, as another node does that found it expired."""
    execute(
        url,
        'UPDATE public."job-scheduler" SET "ownerToken" = gen_random_uuid(), "modifiedAt" = clock_timestamp() '
        "WHERE \"status\" = 'RUNNING'",
    )
