"""Start processes that end with their parent, and ask the system about others."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tenure.embedded.accounts import Account

PR_SET_PDEATHSIG = 1


def spawn(
    arguments: list[str], output: IO[bytes], account: Account | None, death_signal: int
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, as the account, with `output` for all that it says.

    On Linux it gets `death_signal` when the calling process ends. The caller has one thread only.
    """
    return subprocess.Popen(  # noqa: S603 - PostgreSQL's own programs
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=environment(),
        start_new_session=True,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        # A change of user clears the death signal, and the account may be unable to run our Python: so it is set
        # between the two, in the child of a process that has one thread.
        preexec_fn=_bound_to_parent(death_signal),  # noqa: PLW1509
    )


def environment() -> dict[str, str]:
    """Return our environment without libpq's variables, and with English messages."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**ours, "LC_ALL": "C"}


def wait_or_kill(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Wait for a process to end by itself, else kill it; its exit code comes back."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def is_alive(pid: int) -> bool:
    """Say whether there is a process of that id, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def command_of(pid: int) -> list[str]:
    """Return the program and the arguments of a process; empty if there is none or it is a zombie."""
    if sys.platform == "linux":
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return []
        return [os.fsdecode(part) for part in raw.split(b"\0")[:-1]]
    shown = subprocess.run(  # noqa: S603 - a process id is a number
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.split()


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now; it may be taken the moment after."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def sync_directory(directory: Path) -> None:
    """Make the names in a folder outlive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _bound_to_parent(death_signal: int) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return bind
