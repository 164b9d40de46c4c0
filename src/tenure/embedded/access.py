"""Reach a server of ours, and make sure that it is ours."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

from tenure.embedded.plan import CLUSTER, LOG, PASSWORD
from tenure.errors import EmbeddedPostgresError

_CONNECT_LIMIT_S = 10


@dataclass(frozen=True, slots=True)
class Access:
    """Hold where a server listens and what it asks for; its text never shows the password (C11)."""

    home: Path
    port: int
    pid: int
    password: str = field(repr=False)

    @classmethod
    def to_server(cls, home: Path, port: int, pid: int) -> Access:
        """Read the password of the folder."""
        return cls(home, port, pid, (home / PASSWORD).read_text(encoding="ascii").strip())

    @property
    def cluster(self) -> Path:
        """Return PostgreSQL's own data directory."""
        return self.home / CLUSTER

    @property
    def log_path(self) -> Path:
        """Return the file that takes what the server says."""
        return self.home / LOG

    def url(self, database: str) -> str:
        """Return the connection URL of a database, with the password."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def confirm(self) -> None:
        """Raise `EmbeddedPostgresError` unless the server that answers has its data where ours has."""
        try:
            served = self._served()
        except psycopg.Error as error:
            raise EmbeddedPostgresError(
                f"Port {self.port} of 127.0.0.1 does not answer as the server of {self.home}: {error}"
            ) from error
        if os.path.realpath(served) != os.path.realpath(self.cluster):
            raise EmbeddedPostgresError(f"Port {self.port} of 127.0.0.1 serves {served}, which is not ours.")

    def _served(self) -> str:
        # What the environment asks of other servers, such as PGSSLMODE or PGOPTIONS, is not meant for this one.
        with psycopg.connect(
            self.url("postgres"),
            connect_timeout=_CONNECT_LIMIT_S,
            sslmode="disable",
            gssencmode="disable",
            options="",
            autocommit=True,
        ) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
        return str(row[0]) if row else ""
