"""Own a PostgreSQL that ends with this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tenure.embedded.access import Access
from tenure.embedded.choice import kept_home, programs_for, temporary_home
from tenure.embedded.plan import Plan, StopMode
from tenure.embedded.talk import Supervisor
from tenure.errors import EmbeddedPostgresError


class EmbeddedPostgres:
    """Own a running PostgreSQL; as a context manager, stop it at the end.

    However the process that started it ends, ``kill -9`` included, the server is stopped soon after and a
    temporary folder is removed. A fork of that process does not own it: there `stop` does nothing.
    """

    def __init__(self, plan: Plan, supervisor: Supervisor) -> None:
        self._plan = plan
        self._supervisor: Supervisor | None = supervisor
        self._access = Access.to_server(plan.home, *supervisor.answer())

    @classmethod
    def start(
        cls,
        data_directory: Path | None = None,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        binaries_directory: Path | None = None,
        port: int | None = None,
    ) -> EmbeddedPostgres:
        """Start a server, and return once it answers and is known to be ours.

        Without `data_directory` its folder is temporary, and removed when the server is stopped; a given one is
        made if it is missing, and kept. `durable=False` is for tests: the data may be lost when the machine stops
        (not when the server alone does), and a temporary folder lies in memory if there is 1 GiB free.
        `settings` are PostgreSQL's own, by name. `port` is a wish: a taken one is passed over for a free one.
        Raises `EmbeddedPostgresError`, with the end of the server's log; nothing is left running then.
        """
        programs = programs_for(data_directory, binaries_directory)
        home = kept_home(data_directory) if data_directory else temporary_home(in_memory=not durable)
        plan = Plan(
            home=home,
            binaries=programs.directory,
            durable=durable,
            temporary=data_directory is None,
            port=port,
            owner_pid=os.getpid(),
            settings=dict(settings or {}),
        )
        supervisor = Supervisor.start(plan)
        try:
            server = cls(plan, supervisor)
            server._access.confirm()
        except BaseException:
            supervisor.end()
            _discard(plan)
            raise
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"port={self.port}" if self._supervisor else "stopped"
        return f"<EmbeddedPostgres {state} data_directory={str(self.data_directory)!r}>"

    @property
    def port(self) -> int:
        """Return the port of 127.0.0.1 that the server listens on."""
        return self._access.port

    @property
    def pid(self) -> int:
        """Return the process id of the server; a restart changes it."""
        return self._access.pid

    @property
    def data_directory(self) -> Path:
        """Return the real path of the server's folder."""
        return self._plan.home

    @property
    def cluster_directory(self) -> Path:
        """Return PostgreSQL's own data directory, within `data_directory`."""
        return self._access.cluster

    @property
    def log_path(self) -> Path:
        """Return the file that takes what the server says; it goes with a temporary folder."""
        return self._access.log_path

    def url(self, database: str = "postgres") -> str:
        """Return the connection URL of a database, with the password of the superuser: do not log it."""
        return self._access.url(database)

    def stop(self) -> None:
        """Stop the server, and remove its folder if that is temporary; a second call does nothing.

        Open sessions are ended. A server that is not down within 10 s is stopped without a checkpoint.
        """
        if self._supervisor and os.getpid() == self._plan.owner_pid:
            supervisor, self._supervisor = self._supervisor, None
            supervisor.end(self._plan.last_stop)
            _discard(self._plan)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop the server and start it on the same port with its data and settings.

        ``immediate`` is a crash as PostgreSQL sees it: no checkpoint, and recovery at the start. A server that is down
        already is started. Raises `EmbeddedPostgresError` if it does not start, or in a process that does not own it.
        """
        if self._supervisor is None or os.getpid() != self._plan.owner_pid:
            raise EmbeddedPostgresError(
                "Only a server that was not stopped can be restarted, by the process that owns it."
            )
        self._access = Access.to_server(self._plan.home, *self._supervisor.restart(mode))
        self._access.confirm()


def _discard(plan: Plan) -> None:
    # The supervisor does this too; it may have been killed.
    if plan.temporary:
        shutil.rmtree(plan.home, ignore_errors=True)
