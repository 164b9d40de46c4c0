"""Run processes of other people's making against `tenure.embedded`, and see how they and their servers end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tenure.embedded
from tenure.embedded.accounts import Account, server_account, unreachable_part
from tenure.embedded.processes import command_of

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="needs root, which has to run the server as another account")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
NOWHERE = Path("/nonexistent")

OWNER = """
import json, os, pathlib, sys
from tenure.embedded import EmbeddedPostgres
folder = pathlib.Path(sys.argv[1]) if sys.argv[1] else None
server = EmbeddedPostgres.start(folder, durable=False)
if "fork" in sys.argv and os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print(json.dumps({"pid": server.pid, "url": server.url(), "folder": str(server.data_directory)}), flush=True)
sys.stdin.read()
server.stop()
"""
SHARER = """
import json, pathlib, sys
from tenure.embedded import share
folder = pathlib.Path(sys.argv[1]) if sys.argv[1] else None
with share(folder) as server:
    print(json.dumps({"pid": server.pid, "url": server.url(), "folder": str(server.data_directory)}), flush=True)
    sys.stdin.read()
"""


def wait_until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Return as soon as the condition holds; fail if it does not within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        time.sleep(0.005)


def query(url: str, statement: str) -> Any:
    """Run one statement in autocommit, and return the first value if there is one."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def is_gone(pid: int) -> bool:
    """Say whether the process has ended."""
    return command_of(pid) == []


def shown(pid: int, column: str) -> int:
    """Return a number that ps shows of a process."""
    output = subprocess.run(["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(output.stdout)


def child(script: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a Python of ours with a script; what it prints is read with `said`."""
    places = {"PYTHONPATH": os.pathsep.join(place for place in sys.path if place)}
    return subprocess.Popen(
        [options.pop("python", sys.executable), "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **places, **options.pop("environment", {})},
        **options,
    )


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the line that a child prints once its server is ready."""
    assert process.stdout
    line = process.stdout.readline()
    assert line, "the child ended without a server"
    answer: dict[str, Any] = json.loads(line)
    return answer


def leave(process: subprocess.Popen[str]) -> None:
    """Let a child end as it would by itself."""
    assert process.stdin
    process.stdin.close()
    assert process.wait(30) == 0


@contextmanager
def open_folder() -> Generator[Path]:
    """Give a folder that the server's account can pass; pytest's own are closed to it under root."""
    made = Path(tempfile.mkdtemp(prefix="tenure-test-")).resolve()
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def children(folder: Path) -> Generator[Callable[..., subprocess.Popen[str]]]:
    """Start children as `child` does, kill what is left of them, and wait until no server is left in the folder."""
    with ExitStack() as stack:

        def start(script: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
            process = stack.enter_context(child(script, *arguments, **options))
            stack.callback(process.kill)
            return process

        yield start
    wait_until(lambda: not any(is_serving(pid_file) for pid_file in folder.rglob("postmaster.pid")))


def is_serving(pid_file: Path) -> bool:
    """Say whether the process that wrote a postmaster.pid is there."""
    try:
        return not is_gone(int(pid_file.read_text().split()[0]))
    except (FileNotFoundError, IndexError):
        return False


def dropped(account: Account | None) -> dict[str, Any]:
    """Return what `Popen` needs to run a process as the account."""
    return {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}


@dataclass(frozen=True)
class Stranger:
    """Hold what an ordinary user needs to run us: a Python, our code and psycopg where that user can read them."""

    python: str
    places: str
    home: Path
    account: Account | None

    @property
    def options(self) -> dict[str, Any]:
        """Return the keywords of `child`."""
        environment = {"PYTHONPATH": self.places, "HOME": str(self.home), "XDG_DATA_HOME": "", "TMPDIR": "/tmp"}
        libraries = Path(self.python).parents[1] / "lib"
        if libraries.is_relative_to(self.home.parent):
            environment["LD_LIBRARY_PATH"] = str(libraries)
        return {"python": self.python, "environment": environment, "cwd": "/", **dropped(self.account)}


def become_stranger(folder: Path) -> Stranger:
    """Become an ordinary user with an empty HOME; without root that is who we are already."""
    account = server_account()
    home = folder / "home"
    home.mkdir(mode=0o700)
    places = folder / "lib"
    shutil.copytree(Path(tenure.embedded.__path__[0]).parent, places / "tenure")
    site = Path(psycopg.__path__[0]).parent
    for name in [*site.glob("psycopg*"), *site.glob("typing_extensions*")]:
        (shutil.copytree if name.is_dir() else shutil.copy)(name, places / name.name)
    if account:
        os.chown(home, account.uid, account.gid)
    return Stranger(readable_python(folder, account), str(places), home, account)


def readable_python(folder: Path, account: Account | None) -> str:
    """Return a Python of our version that the account can run, copied if there is no other way."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(name, path=os.defpath)):
        if python and unreachable_part(Path(python), account) is None:
            return python
    library = Path(sys.base_prefix, "lib")
    ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__")
    shutil.copytree(library / name, folder / "python" / "lib" / name, ignore=ignored)
    for shared in library.glob("libpython*"):
        shutil.copy(shared, folder / "python" / "lib" / shared.name)
    (folder / "python" / "bin").mkdir()
    return shutil.copy(os.path.realpath(sys.executable), str(folder / "python" / "bin" / name))
