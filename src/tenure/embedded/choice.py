"""Choose the programs and the folder of a server before it is started."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tenure.embedded.accounts import Account, make_home, server_account, unreachable_part
from tenure.embedded.plan import CLUSTER
from tenure.embedded.programs import SYSTEM_FOLDER, Binaries, find_binaries, inspect, runnable
from tenure.errors import EmbeddedPostgresError

MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
MEMORY_NEEDED_BYTES = 1024**3


def programs_for(home: Path | None, binaries_directory: Path | None = None) -> Binaries:
    """Return the programs given, or those of the version that made the data, or the newest there are.

    Raises `EmbeddedPostgresError` if there are none, or if they cannot serve the data that is there.
    """
    major = _major_of(home / CLUSTER) if home else None
    found = _given(binaries_directory) if binaries_directory else find_binaries(major=major)
    if major not in (None, found.major):
        raise EmbeddedPostgresError(
            f"The data in {home} was made by PostgreSQL {major}, and {found.directory} holds PostgreSQL {found.major}. "
            f"Use another data folder."
        )
    return runnable(found, server_account(home / CLUSTER if home else None))


def temporary_home(*, in_memory: bool) -> Path:
    """Make a folder that nobody else knows, in memory if that is wished for and there is 1 GiB free."""
    account = server_account()
    parent = MEMORY_FOLDER if in_memory and _has_room(MEMORY_FOLDER) else Path(tempfile.gettempdir())
    home = Path(tempfile.mkdtemp(prefix="tenure-postgres-", dir=parent)).resolve()
    if account:
        home.chmod(0o711)
    return home


def kept_home(data_directory: Path) -> Path:
    """Make the folder of a kept server if it is missing, and return its real path."""
    home = Path(data_directory).absolute()
    make_home(home, server_account(home / CLUSTER))
    return home.resolve()


def default_data_directory(major: int) -> Path:
    """Return the folder of the kept server of one major version.

    ``tenure/postgres-<major>`` below ``XDG_DATA_HOME`` or ``~/.local/share``, on macOS below
    ``~/Library/Application Support``. For root it is below ``/var/lib/tenure`` if the account that PostgreSQL runs
    as cannot pass the way there, which is so for ``/root``, or if there is no HOME.
    Raises `EmbeddedPostgresError` if neither variable is set for another user.
    """
    account, name = server_account(), f"postgres-{major}"
    below = _user_data_folder()
    if below and not _is_closed(below, account):
        return below / "tenure" / name
    if account:
        return SYSTEM_FOLDER / name
    raise EmbeddedPostgresError("There is no home folder: set HOME or XDG_DATA_HOME, or give a data folder.")


def _user_data_folder() -> Path | None:
    wished = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(wished):
        return Path(wished)
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        return None
    return Path(home, "Library", "Application Support") if sys.platform == "darwin" else Path(home, ".local", "share")


def _is_closed(folder: Path, account: Account | None) -> bool:
    return unreachable_part(folder, account) is not None


def _given(directory: Path) -> Binaries:
    found = inspect(Path(directory).absolute())
    if found is None:
        raise EmbeddedPostgresError(f"{directory} holds no initdb and postgres that run here.")
    return found


def _major_of(cluster: Path) -> int | None:
    try:
        text = (cluster / "PG_VERSION").read_text()
    except FileNotFoundError:
        return None
    return int(text.split(".")[0])


def _has_room(folder: Path) -> bool:
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(folder).free >= MEMORY_NEEDED_BYTES
