"""A call as plain texts: for drivers whose own converters an application may have replaced (asyncpg's, above all)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tenure.drivers import Rows
from tenure.operations import Call

_PLACEHOLDER = re.compile(rb'("(?:[^"]|"")*")|\$(\d+)')
"""A quoted identifier, which may hold anything and is left alone, or a parameter."""


_SECRETS = ("owner_token", "payload")


class Secret(str):
    """Be a text that no log of statements and no error of SQLAlchemy's shows (C11)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'...'"


def statement_of(call: Call, placeholder: bytes, *, percent: bytes = b"%", colon: bytes = b":") -> bytes:
    """Give the statement with a driver's own placeholders, and with its own spelling of what means more to it."""
    found = call.query.text.replace(b"%", percent).replace(b":", colon)
    return _PLACEHOLDER.sub(lambda match: match[1] or match.expand(b"CAST(" + placeholder + b" AS text)"), found)


def texts_of(call: Call) -> list[str | None]:
    """Give the values as texts: an application's own codecs for uuid or jsonb, common with asyncpg, change nothing."""
    return [
        None if value is None else (Secret if name.startswith(_SECRETS) else str)(_text(value))
        for name, value in zip(call.query.parameters, call.parameters, strict=True)
    ]


def _text(value: Any) -> str:
    """Spell a value as PostgreSQL reads it; an array by quoting each of its elements."""
    if not isinstance(value, list):
        return str(value)
    escaped = [str(element).replace("\\", "\\\\").replace('"', '\\"') for element in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return "{" + ",".join(f'"{element}"' for element in escaped) + "}"


def plain_rows(rows: Iterable[Iterable[Any]]) -> Rows:
    """Give rows as plain tuples; from a database in SQL_ASCII, psycopg gives texts as bytes."""
    return [tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in rows]
