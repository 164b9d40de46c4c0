"""How to connect with psycopg: the connection strings of callers and of their pools, with our defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure.errors import InvalidJobOptionsError

CONNECT_LIMIT_S = 5
_NOT_FOR_LIBPQ = {"autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hold how to connect."""

    conninfo: str = field(repr=False)
    keywords: dict[str, Any] = field(repr=False)

    def text(self) -> str:
        """Give one connection string with our defaults, which anything given or in libpq's environment overrides.

        The encoding is ours alone: with another one, not every text could be sent.
        """
        given = {key: value for key, value in self.keywords.items() if key not in _NOT_FOR_LIBPQ}
        text = make_conninfo(self.conninfo, **given)
        defaults: dict[str, Any] = {"fallback_application_name": "tenure"}
        if "PGCONNECT_TIMEOUT" not in os.environ:
            defaults["connect_timeout"] = CONNECT_LIMIT_S
        known = conninfo_to_dict(text)
        missing = {key: value for key, value in defaults.items() if key not in known}
        return make_conninfo(text, client_encoding="UTF8", **missing)


def check_conninfo(conninfo: str) -> None:
    """Refuse a connection string that libpq cannot read, without quoting it: it may hold a password."""
    if not _can_be_read(conninfo):
        raise InvalidJobOptionsError(
            "The connection string cannot be read (it is not shown here, since it may hold a password). Give "
            "postgresql://user:password@host:5432/database, percent-encoding special characters, or key=value pairs."
        )


def _can_be_read(conninfo: str) -> bool:
    try:
        hosts = str(conninfo_to_dict(conninfo).get("host") or "")
    except (psycopg.Error, UnicodeError, ValueError):
        return False
    # what follows an unescaped @ in a password is taken for the host, and errors show hosts; one that leads a host
    # means an abstract socket
    return not any("@" in host[1:] for host in hosts.split(","))


async def resolved(value: Any) -> Any:
    """Give what a pool was made with: a value, a function that gives it, or a coroutine function."""
    found = value() if callable(value) else value
    return await found if isawaitable(found) else found
