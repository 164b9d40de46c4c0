"""A real PgBouncer in transaction mode, in front of the test server.

`TENURE_PGBOUNCER` names the program, so that any version can be tested; else it is the one that is installed. What
needs 1.21 is also content with the one that `scripts/newer_pgbouncer` fetches.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from tests.support.waiting import eventually

PROGRAM = (
    os.environ.get("TENURE_PGBOUNCER")
    or shutil.which("pgbouncer")
    or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
)
FETCHED = Path(__file__).resolve().parents[2] / ".cache/pgbouncer/pgbouncer"
NEEDS_NEWER = "needs PgBouncer 1.21 or newer (on Debian, scripts/newer_pgbouncer fetches one)"


@dataclass(frozen=True)
class _Pooler:
    """What is behind an address that is a pooler's, and whether clients may prepare statements there."""

    server: str
    prepared: bool


_poolers: dict[str, _Pooler] = {}
"""By port, those of this process."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@cache
def preparing_program() -> str | None:
    """Find a PgBouncer that follows a prepared statement to whatever server connection it is wanted on: 1.21."""
    wanted = [PROGRAM] if "TENURE_PGBOUNCER" in os.environ else [PROGRAM, str(FETCHED)]
    return next((program for program in wanted if program and _version(program) >= (1, 21)), None)


@contextmanager
def pgbouncer(url: str, folder: Path, *, pool_size: int = 4, prepared: bool = False, more: str = "") -> Iterator[str]:
    """Start PgBouncer for the server of that URL, give the URL through it, and end it."""
    program = preparing_program() if prepared else PROGRAM
    assert program, "PgBouncer is not installed"
    port, target = free_port(), urlsplit(url)
    (folder / "users.txt").write_text(f'"{target.username}" "{target.password}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={target.hostname} port={target.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\npool_mode = transaction\n"
        f"default_pool_size = {pool_size}\nmax_client_conn = 1000\nadmin_users = {target.username}\n"
        f"auth_type = scram-sha-256\nauth_file = {folder / 'users.txt'}\n"
        f"auth_user = {target.username}\n"  # other users are looked up in the server with this one's rights
        + (f"max_prepared_statements = {100 if prepared else 0}\n" if _version(program) >= (1, 21) else "")
        + more
    )
    process = subprocess.Popen([program, *_as_nobody(folder), folder / "pgbouncer.ini"], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: answers(port))
        _poolers[str(port)] = _Pooler(f"{target.hostname}:{target.port}", prepared)
        yield target._replace(netloc=f"{target.username}:{target.password}@127.0.0.1:{port}").geturl()
    finally:
        process.terminate()
        process.wait(10)


def direct(url: str) -> str:
    """Give the URL past the pooler, if it leads through one: for what only the server itself can be asked."""
    parts = urlsplit(url)
    user, _, address = parts.netloc.rpartition("@")
    pooler = _pooler_of(url)
    return parts._replace(netloc=f"{user}@{pooler.server if pooler else address}").geturl()


def psycopg_settings(url: str) -> dict[str, Any]:
    """Give what an application's own psycopg connections need to be told over that URL."""
    return {} if _may_prepare(url) else {"prepare_threshold": None}


def asyncpg_settings(url: str) -> dict[str, Any]:
    """Give what an application's own asyncpg connections and pools need to be told over that URL."""
    return {} if _may_prepare(url) else {"statement_cache_size": 0}


def forget_sessions(url: str) -> None:
    """Have a pooler open new server connections for that database, which know its new defaults."""
    if _pooler_of(url):
        parts = urlsplit(url)
        console = parts._replace(path="/pgbouncer").geturl()
        with psycopg.connect(console, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute(f"RECONNECT {parts.path[1:]}".encode())


def _pooler_of(url: str) -> _Pooler | None:
    return _poolers.get(str(urlsplit(url).port))


def _may_prepare(url: str) -> bool:
    pooler = _pooler_of(url)
    return pooler is None or pooler.prepared


def _version(program: str) -> tuple[int, int]:
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except OSError:
        return 0, 0
    found = re.search(r"(\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def answers(port: int) -> bool:
    """Say whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _as_nobody(folder: Path) -> list[str]:
    """Give the option that leaves root once the program is loaded, and hand the folder over: root is refused."""
    if os.geteuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    for path in (folder, *folder.iterdir()):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return ["-u", nobody.pw_name]
