"""End and share a real PostgreSQL, however its users end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.embedded import EmbeddedPostgres, binaries, share, supervisor
from tenure.embedded.accounts import server_account
from tenure.embedded.plan import CLUSTER, Plan
from tenure.embedded.talk import Supervisor
from tenure.errors import EmbeddedPostgresError
from tests.support.embedding import (
    OWNER,
    ROOT,
    SHARER,
    become_stranger,
    children,
    dropped,
    is_gone,
    leave,
    on_linux,
    open_folder,
    query,
    said,
    shown,
    wait_until,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that the server's account can pass."""
    with open_folder() as made:
        yield made


@pytest.fixture
def run(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start children that are gone at the end, with their servers."""
    with children(folder) as start:
        yield start


def test_an_ordinary_user_needs_no_set_up(folder: Path, run: Callable[..., subprocess.Popen[str]]) -> None:
    """Own a server and share the kept one as an ordinary user with an empty HOME."""
    stranger = become_stranger(folder)
    owner = run(OWNER, "", **stranger.options)
    owned = said(owner)
    assert query(owned["url"], "SELECT 1") == 1
    assert shown(owned["pid"], "uid") == shown(owner.pid, "uid") != 0 or not ROOT
    leave(owner)
    assert is_gone(owned["pid"])
    assert not Path(owned["folder"]).exists()
    sharer = run(SHARER, "", **stranger.options)
    shared = said(sharer)
    assert Path(shared["folder"]).is_relative_to(stranger.home)
    assert query(shared["url"], "SELECT 1") == 1
    leave(sharer)
    wait_until(lambda: is_gone(shared["pid"]))


@pytest.mark.parametrize("with_fork", [False, True])
def test_kill_of_the_owner_ends_the_server(
    folder: Path, run: Callable[..., subprocess.Popen[str]], with_fork: bool
) -> None:
    """Stop a server whose owner got SIGKILL, even while a fork of it lives on; its data starts again at once."""
    owner = run(OWNER, folder / "data", *(["fork"] if with_fork else []))
    first = said(owner)
    query(first["url"], "CREATE TABLE kept AS SELECT 7 AS n")
    owner.kill()
    with EmbeddedPostgres.start(folder / "data", durable=False) as server:
        assert is_gone(first["pid"])
        assert query(server.url(), "SELECT n FROM kept") == 7


def test_kill_of_the_owner_removes_a_temporary_folder(run: Callable[..., subprocess.Popen[str]]) -> None:
    """Leave nothing behind in memory."""
    owner = run(OWNER, "")
    first = said(owner)
    owner.kill()
    wait_until(lambda: is_gone(first["pid"]) and not Path(first["folder"]).exists())


@on_linux
def test_kill_of_the_supervisor_ends_the_server(folder: Path) -> None:
    """Let no server outlive its supervisor, and start its data again."""
    with EmbeddedPostgres.start(folder / "data", durable=False) as server:
        os.kill(shown(server.pid, "ppid"), signal.SIGKILL)
        wait_until(lambda: is_gone(server.pid))
        with pytest.raises(EmbeddedPostgresError, match="supervisor"):
            server.restart()
    with EmbeddedPostgres.start(folder / "data", durable=False) as again:
        assert query(again.url(), "SELECT 1") == 1


def test_the_thread_that_starts_a_server_may_end() -> None:
    """Tie the server to the process; Linux would tell of the death of the thread."""
    started: list[EmbeddedPostgres] = []
    thread = threading.Thread(target=lambda: started.append(EmbeddedPostgres.start(durable=False)))
    thread.start()
    thread.join()
    with started[0] as server:
        assert query(server.url(), "SELECT pg_sleep(0.5)") == ""


def test_a_fork_does_not_stop_the_server() -> None:
    """Keep the server when a forked child leaves the block."""
    with EmbeddedPostgres.start(durable=False) as server:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                server.stop()
            os._exit(0)
        os.waitpid(pid, 0)
        assert query(server.url(), "SELECT 1") == 1


def test_two_processes_share_one_server(folder: Path, run: Callable[..., subprocess.Popen[str]]) -> None:
    """Keep the server when the process that started it leaves, stop it after the last one, keep the data."""
    first, second = run(SHARER, folder / "data"), run(SHARER, folder / "data")
    one, two = said(first), said(second)
    assert one == two
    query(one["url"], "CREATE TABLE kept AS SELECT 7 AS n")
    leave(first)
    assert query(two["url"], "SELECT n FROM kept") == 7
    leave(second)
    wait_until(lambda: is_gone(two["pid"]))
    with share(folder / "data") as server:
        assert query(server.url(), "SELECT n FROM kept") == 7
        pid = server.pid
    wait_until(lambda: is_gone(pid))


def test_kill_of_one_sharer_leaves_the_server_to_the_others(
    folder: Path, run: Callable[..., subprocess.Popen[str]]
) -> None:
    """Forget a user that got SIGKILL, the one that started the server included."""
    first = run(SHARER, folder / "data")
    one = said(first)
    second = run(SHARER, folder / "data")
    assert said(second) == one
    first.kill()
    first.wait()
    third = run(SHARER, folder / "data")
    assert said(third) == one
    leave(third)
    assert query(one["url"], "SELECT 1") == 1
    second.kill()
    wait_until(lambda: is_gone(one["pid"]))


def test_many_come_and_go_at_once(folder: Path, run: Callable[..., subprocess.Popen[str]]) -> None:
    """Give a working server to everyone who comes while it is started or stopped."""
    for _ in range(3):
        sharers = [run(SHARER, folder / "data") for _ in range(4)]
        assert {query(said(sharer)["url"], "SELECT 1") for sharer in sharers} == {1}
        for sharer in sharers:
            leave(sharer)


@on_linux
def test_a_shared_server_whose_supervisor_died_is_started_again(folder: Path) -> None:
    """Give the next one who comes a new server, although users of the dead one are still there."""
    with share(folder / "data") as first:
        os.kill(shown(first.pid, "ppid"), signal.SIGKILL)
        with share(folder / "data") as second:
            assert query(second.url(), "SELECT 1") == 1
            assert second.pid != first.pid
    wait_until(lambda: is_gone(second.pid))


def test_one_folder_is_shared_or_owned_but_not_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a second owner, and an owner among users who share."""
    with share(folder / "data") as server:
        with pytest.raises(EmbeddedPostgresError, match="in use by another process"):
            EmbeddedPostgres.start(folder / "data")
        assert query(server.url(), "SELECT 1") == 1
    monkeypatch.setattr(supervisor, "OWNED_LIMIT_S", 0.1)
    with EmbeddedPostgres.start(folder / "data", durable=False):
        with pytest.raises(EmbeddedPostgresError, match="in use by another process"):
            supervisor._run_owned(Plan(folder / "data", binaries().directory), os.getpid())


def test_a_stale_pid_file_whose_pid_lives_again_is_removed(folder: Path) -> None:
    """Start after a crash whose process id now belongs to somebody else, as in a container that starts again."""
    # Shared memory in files of the folder: what a killed server leaves behind goes with it.
    in_files = {"dynamic_shared_memory_type": "mmap"}
    with EmbeddedPostgres.start(folder / "data", durable=False, settings=in_files) as server:
        query(server.url(), "CREATE TABLE kept AS SELECT 7 AS n")
        query(server.url(), "CHECKPOINT")
        pid_file = server.cluster_directory / "postmaster.pid"
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: is_gone(server.pid))
        lines = pid_file.read_text().splitlines()
    account = server_account(folder / "data" / CLUSTER)
    with subprocess.Popen(["sleep", "60"], **dropped(account)) as foreigner:
        pid_file.write_text("\n".join([str(foreigner.pid), *lines[1:], ""]))
        if account:
            os.chown(pid_file, account.uid, account.gid)
        with EmbeddedPostgres.start(folder / "data", durable=False) as server:
            assert query(server.url(), "SELECT n FROM kept") == 7
        assert foreigner.poll() is None
        foreigner.kill()


def test_an_orphan_is_ended_before_its_data_is_used(folder: Path) -> None:
    """Take the folder back from a PostgreSQL that lost its supervisor, where the system does not end it."""
    EmbeddedPostgres.start(folder / "data", durable=False).stop()
    account = server_account(folder / "data" / CLUSTER)
    plan = Plan(folder / "data", binaries().directory)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    with subprocess.Popen(plan.server_arguments(port), **quiet, **dropped(account)) as orphan:
        wait_until(lambda: "ready" in _text(plan.cluster / "postmaster.pid"))
        with EmbeddedPostgres.start(folder / "data", durable=False) as server:
            assert orphan.wait(5) == 0
            assert query(server.url(), "SELECT 1") == 1


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_an_initdb_that_died_half_way_is_done_again(folder: Path) -> None:
    """Leave nothing that looks whole when everything gets SIGKILL during initdb."""
    home = folder / "data"
    home.mkdir(mode=0o755)
    started = Supervisor.start(Plan(home, binaries().directory, owner_pid=os.getpid()))
    wait_until(lambda: any(home.glob("initdb-*/PG_VERSION")))
    started.process.kill()
    started.release()
    assert not (home / CLUSTER).exists()
    with EmbeddedPostgres.start(home, durable=False) as server:
        assert query(server.url(), "SELECT 1") == 1
    # The processes of the dead initdb may have been writing while the first start swept.
    EmbeddedPostgres.start(home, durable=False).stop()
    assert not any(home.glob("initdb-*"))
