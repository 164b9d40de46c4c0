"""Decide as whom PostgreSQL runs, and whether that account can reach a folder."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from tenure.errors import EmbeddedPostgresError

CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    """Name the user and the group that a process is given, with no further groups."""

    uid: int
    gid: int


def server_account(cluster: Path | None = None) -> Account | None:
    """Choose the account of the server: None is the account of this process, unless it is root.

    Data that is there already keeps its owner, so a package that brings a user ``postgres`` later changes nothing.
    """
    if os.geteuid() != 0:
        return None
    kept = _owner(cluster) if cluster else None
    return kept or _first_candidate()


def unreachable_part(folder: Path, account: Account | None) -> Path | None:
    """Return the highest existing folder on the way to `folder` that the account cannot pass; None if there is none.

    Access lists are not read.
    """
    if account is None:
        return None
    way = [*reversed(folder.resolve().parents), folder.resolve()]
    return next((part for part in way if part.exists() and not _passes(part, account)), None)


def make_home(home: Path, account: Account | None) -> None:
    """Create the folder of a server, and what is missing above it, so that the account can pass.

    A folder that is there keeps its mode. Raises `EmbeddedPostgresError` if it cannot be made or reached.
    """
    try:
        _make(home, 0o711 if account else 0o700, account)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The folder {home} cannot be made: {error.strerror}. Give a data folder that this user may write to."
        ) from error
    closed = unreachable_part(home, account)
    if closed:
        raise EmbeddedPostgresError(
            f"PostgreSQL does not run as root, and the account that it is given cannot pass {closed}. "
            f"Give a data folder outside of it, such as one below /var/lib."
        )


def _make(folder: Path, mode: int, account: Account | None) -> None:
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        _make(folder.parent, 0o755 if account else 0o700, account)
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)


def _owner(cluster: Path) -> Account | None:
    try:
        found = cluster.stat()
    except FileNotFoundError:
        return None
    return Account(found.st_uid, found.st_gid) if found.st_uid else None


def _first_candidate() -> Account:
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedPostgresError(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(CANDIDATES)}. Run as an ordinary user."
    )


def _passes(folder: Path, account: Account) -> bool:
    found = folder.stat()
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
