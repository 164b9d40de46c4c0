"""Say what server is wanted, as a value that is handed to the supervisor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tenure.errors import EmbeddedPostgresError

StopMode = Literal["fast", "immediate"]
CLUSTER, PASSWORD, LOG = "cluster", "password", "server.log"
# Without fsync a synchronous commit costs one write, and keeps what was committed over a crash of the server alone.
_FORGETFUL = {"fsync": "off", "full_page_writes": "off"}


class PortTakenError(EmbeddedPostgresError):
    """Say that another program listens on the port."""


def _nothing() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Plan:
    """Describe a server; it holds no secret, since it is seen in the list of processes.

    `owner_pid` is the process that the server ends with; None for a shared server.
    """

    home: Path
    binaries: Path
    durable: bool = True
    temporary: bool = False
    port: int | None = None
    owner_pid: int | None = None
    settings: Mapping[str, str] = field(default_factory=_nothing)

    @property
    def cluster(self) -> Path:
        """Return PostgreSQL's own data directory."""
        return self.home / CLUSTER

    @property
    def password(self) -> Path:
        """Return the file with the password of the user postgres."""
        return self.home / PASSWORD

    @property
    def log(self) -> Path:
        """Return the file that takes what the server says."""
        return self.home / LOG

    @property
    def last_stop(self) -> StopMode:
        """Return how the server is stopped for good: without a checkpoint if nobody will read the data again."""
        return "immediate" if self.temporary and not self.durable else "fast"

    def initdb_arguments(self, folder: Path, password_file: Path) -> list[str]:
        """Return the command that makes a cluster in `folder`."""
        command = [str(self.binaries / "initdb"), "-D", str(folder), "-U", "postgres", f"--pwfile={password_file}"]
        locale = ["-A", "scram-sha-256", "-E", "UTF8", "--locale=C"]
        return [*command, *locale, *([] if self.durable else ["--no-sync"])]

    def server_arguments(self, port: int) -> list[str]:
        """Return the command that serves the cluster on one port of 127.0.0.1 and on no socket file."""
        place = ["-D", str(self.cluster), "-h", "127.0.0.1", "-p", str(port), "-k", ""]
        settings = {**({} if self.durable else _FORGETFUL), **self.settings}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self.binaries / "postgres"), *place, *options]

    def to_text(self) -> str:
        """Write the plan as JSON."""
        return json.dumps({**asdict(self), "home": str(self.home), "binaries": str(self.binaries)})

    @classmethod
    def from_text(cls, text: str) -> Plan:
        """Read what `to_text` wrote."""
        fields: dict[str, Any] = json.loads(text)
        home, programs = Path(fields.pop("home")), Path(fields.pop("binaries"))
        return cls(home=home, binaries=programs, **fields)
