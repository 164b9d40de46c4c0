"""A real Redis, in memory, on a port of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.pgbouncer import answers, free_port
from tests.support.waiting import eventually

PROGRAM = shutil.which("redis-server") or shutil.which("redis-server", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Start Redis without persistence, give its URL, and end it."""
    assert PROGRAM, "Redis is not installed"
    port = free_port()
    settings = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": folder, "loglevel": "warning"}
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    process = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: answers(port))
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)
