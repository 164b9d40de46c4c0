"""Share one kept PostgreSQL among processes; the last one to leave has it stopped."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tenure.embedded.access import Access
from tenure.embedded.choice import default_data_directory, kept_home, programs_for
from tenure.embedded.locks import IN_USE, START, hold
from tenure.embedded.plan import CLUSTER, Plan
from tenure.embedded.postmaster import Postmaster
from tenure.embedded.programs import Binaries, binaries
from tenure.embedded.talk import Supervisor
from tenure.errors import EmbeddedPostgresError

_STOPPING_LIMIT_S = 40.0
_STARTING_LIMIT_S = 400.0


class SharedPostgres:
    """Reach a server that other processes may use too; good for as long as `share` is open."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def __repr__(self) -> str:
        return f"<SharedPostgres port={self.port} data_directory={str(self.data_directory)!r}>"

    @property
    def port(self) -> int:
        """Return the port of 127.0.0.1 that the server listens on."""
        return self._access.port

    @property
    def pid(self) -> int:
        """Return the process id of the server."""
        return self._access.pid

    @property
    def data_directory(self) -> Path:
        """Return the real path of the server's folder."""
        return self._access.home

    @property
    def log_path(self) -> Path:
        """Return the file that takes what the server says."""
        return self._access.log_path

    def url(self, database: str = "postgres") -> str:
        """Return the connection URL of a database, with the password of the superuser: do not log it."""
        return self._access.url(database)


@contextmanager
def share(data_directory: Path | None = None) -> Generator[SharedPostgres]:
    """Use the kept server of a folder, started if it is not running, until the block ends.

    The server stays while any process is in such a block, however the process that started it ends; after the
    last one it is stopped, and its data is kept. A fork inside the block counts as a user until it ends.
    Without `data_directory` the folder is `default_data_directory` of the newest PostgreSQL found.
    Raises `EmbeddedPostgresError` if the server cannot be had, or if one process owns it for itself.
    """
    programs, home = _choose(data_directory)
    in_use = hold(home / IN_USE, "shared", _STOPPING_LIMIT_S)
    if in_use is None:
        raise EmbeddedPostgresError(f"The server in {home} is owned by another process, which does not share it.")
    try:
        yield SharedPostgres(_running_or_started(home, programs))
    finally:
        os.close(in_use)


def _choose(data_directory: Path | None) -> tuple[Binaries, Path]:
    folder = data_directory or default_data_directory(binaries().major)
    return programs_for(folder), kept_home(folder)


def _running_or_started(home: Path, programs: Binaries) -> Access:
    start = hold(home / START, "alone", _STARTING_LIMIT_S)
    if start is None:
        raise EmbeddedPostgresError(f"Another process has been starting the server in {home} for too long.")
    try:
        return _running(home) or _started(home, programs, start)
    finally:
        os.close(start)


def _running(home: Path) -> Access | None:
    found = Postmaster.read(home / CLUSTER)
    if found.status != "ready" or not found.serves(home / CLUSTER):
        return None
    access = Access.to_server(home, found.port, found.pid)
    try:
        access.confirm()
    except EmbeddedPostgresError:
        return None
    return access


def _started(home: Path, programs: Binaries, start_lock: int) -> Access:
    # The supervisor keeps the start lock too, so that nobody starts a second one if this process is killed meanwhile.
    supervisor = Supervisor.start(Plan(home=home, binaries=programs.directory), (start_lock,))
    try:
        access = Access.to_server(home, *supervisor.answer())
    finally:
        supervisor.release()
    access.confirm()
    return access
