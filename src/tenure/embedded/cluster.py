"""Make, start and stop PostgreSQL in its folder; used by the supervisor, which is its parent."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

from tenure.embedded import processes
from tenure.embedded.accounts import make_home, server_account
from tenure.embedded.plan import Plan, PortTakenError, StopMode
from tenure.embedded.postmaster import Postmaster
from tenure.errors import EmbeddedPostgresError

INITDB_LIMIT_S, READY_LIMIT_S, FAST_LIMIT_S, IMMEDIATE_LIMIT_S = 180.0, 120.0, 10.0, 10.0
PORTS_TRIED = 8
LOG_KEPT_BYTES = 16 * 1024 * 1024
_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_STAGING = "initdb-"


class Cluster:
    """Own the PostgreSQL of one folder; the caller holds the supervisor's lock of that folder."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._account = server_account(plan.cluster)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        """Return the process id of the server; 0 while there is none."""
        return self._process.pid if self._process else 0

    def prepare(self) -> None:
        """Bring the folder to where PostgreSQL can be started in it, whatever happened in it before."""
        make_home(self._plan.home, self._account)
        self._sweep()
        password = self._password()
        if not self._plan.cluster.exists():
            self._initdb(password)
        Postmaster.read(self._plan.cluster).clear_the_way(self._plan.cluster)
        self._roll_log()

    def start(self, port: int | None = None) -> None:
        """Start on `port` only, or else on the wished-for port if it is free and on a free one if not.

        Raises `EmbeddedPostgresError` with the end of the server's log; nothing is left running then.
        """
        if port:
            return self._start_on(port)
        for wish in (self._plan.port, *[None] * PORTS_TRIED):
            with contextlib.suppress(PortTakenError):
                return self._start_on(wish or processes.free_port())
        raise EmbeddedPostgresError(f"{PORTS_TRIED} free ports in a row were taken before PostgreSQL could listen.")

    def stop(self, mode: StopMode) -> None:
        """Stop the server, harder each time a limit has passed."""
        if self._process is None:
            return
        for number, limit_s in (
            (_SIGNALS[mode], FAST_LIMIT_S),
            (signal.SIGQUIT, IMMEDIATE_LIMIT_S),
            (signal.SIGKILL, None),
        ):
            if self.ended():
                break
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(limit_s)
        self._process = None

    def ended(self) -> bool:
        """Say whether the server is gone, and reap it if it is."""
        return self._process is None or self._process.poll() is not None

    def remove(self) -> None:
        """Remove the whole folder."""
        shutil.rmtree(self._plan.home, ignore_errors=True)

    def _start_on(self, port: int) -> None:
        log_offset = self._log_size()
        with self._plan.log.open("ab") as log:
            self._process = self._spawn(self._plan.server_arguments(port), log)
        self.port = port
        try:
            self._wait_until_ready(log_offset)
        except BaseException:
            self.stop("immediate")
            raise

    def _spawn(self, arguments: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        return processes.spawn(arguments, output, self._account, _SIGNALS[self._plan.last_stop])

    def _wait_until_ready(self, log_offset: int) -> None:
        deadline_s = time.monotonic() + READY_LIMIT_S
        while not Postmaster.read(self._plan.cluster).is_ready(self.pid):
            if self.ended():
                raise self._did_not_start(log_offset)
            if time.monotonic() > deadline_s:
                raise EmbeddedPostgresError(
                    f"PostgreSQL was not ready within {READY_LIMIT_S:g} s. It says: {self._log_end(log_offset)}"
                )
            time.sleep(0.01)

    def _did_not_start(self, log_offset: int) -> EmbeddedPostgresError:
        said = self._log_end(log_offset)
        if "could not create any TCP/IP sockets" in said:
            return PortTakenError(f"Port {self.port} of 127.0.0.1 is taken by another program.")
        return EmbeddedPostgresError(
            f"PostgreSQL did not start in {self._plan.home}. Mend what its log names, or use another data folder. "
            f"The log ends:\n{said}"
        )

    def _initdb(self, password: str) -> None:
        # Made beside its place and renamed, so that a death half-way leaves nothing that looks whole.
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self._plan.home))
        secret = self._secret_for_initdb(password)
        if self._account:
            os.chown(staging, self._account.uid, self._account.gid)
        with tempfile.TemporaryFile() as output:
            process = self._spawn(self._plan.initdb_arguments(staging, secret), output)
            if processes.wait_or_kill(process, INITDB_LIMIT_S) != 0:
                output.seek(0)
                said = output.read().decode(errors="replace").strip()
                raise EmbeddedPostgresError(f"initdb failed in {self._plan.home}. It says:\n{said}")
        secret.unlink()
        staging.rename(self._plan.cluster)
        if self._plan.durable:
            processes.sync_directory(self._plan.home)

    def _secret_for_initdb(self, password: str) -> Path:
        descriptor, name = tempfile.mkstemp(prefix=_STAGING, dir=self._plan.home)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(password + "\n")
            if self._account:
                os.fchown(descriptor, self._account.uid, self._account.gid)
        return Path(name)

    def _password(self) -> str:
        kept = self._plan.password
        if not kept.exists():
            fresh = kept.with_name(f"{_STAGING}password")
            fresh.touch(mode=0o600)
            fresh.write_text(secrets.token_urlsafe(24), encoding="ascii")
            fresh.rename(kept)
        return kept.read_text(encoding="ascii").strip()

    def _sweep(self) -> None:
        for left_over in self._plan.home.glob(f"{_STAGING}*"):
            if left_over.is_dir():
                shutil.rmtree(left_over, ignore_errors=True)
            else:
                left_over.unlink()

    def _roll_log(self) -> None:
        if self._log_size() > LOG_KEPT_BYTES:
            self._plan.log.rename(self._plan.log.with_suffix(".old.log"))

    def _log_size(self) -> int:
        return self._plan.log.stat().st_size if self._plan.log.exists() else 0

    def _log_end(self, offset: int) -> str:
        with self._plan.log.open("rb") as log:
            log.seek(offset)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-15:])
