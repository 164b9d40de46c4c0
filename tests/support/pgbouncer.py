"""A real PgBouncer in transaction mode, in front of the test server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.waiting import eventually

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def pgbouncer(url: str, folder: Path, *, pool_size: int = 4) -> Iterator[str]:
    """Start PgBouncer for that database, give the URL through it, and end it."""
    assert PROGRAM, "PgBouncer is not installed"
    port, target = free_port(), urlsplit(url)
    (folder / "users.txt").write_text(f'"{target.username}" "{target.password}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={target.hostname} port={target.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\npool_mode = transaction\n"
        f"default_pool_size = {pool_size}\nauth_type = scram-sha-256\nauth_file = {folder / 'users.txt'}\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    user = _unprivileged(folder)
    process = subprocess.Popen([PROGRAM, folder / "pgbouncer.ini"], stderr=subprocess.DEVNULL, user=user)
    try:
        eventually(lambda: answers(port))
        yield target._replace(netloc=f"{target.username}:{target.password}@127.0.0.1:{port}").geturl()
    finally:
        process.terminate()
        process.wait(10)


def answers(port: int) -> bool:
    """Say whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _unprivileged(folder: Path) -> int | None:
    """Hand the folder to the user to run as: PgBouncer refuses to run as root."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    for path in (folder, *folder.iterdir()):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return nobody.pw_uid
