"""How Django connects to one of its databases: asked of its settings each time, for connections of our own.

Django's own connection belongs to a thread, and a transaction may be open on it, so it is never used here (C4.5).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tenure.drivers.recipes import Recipe


def django_source(connection: Any) -> Callable[[], Recipe]:
    """Give what says how to connect to the database behind `connection` or `connections["alias"]`."""
    alias: str = connection.alias
    if connection.vendor != "postgresql":
        raise TypeError(f"The Django database {alias!r} is {connection.vendor}; tenure needs PostgreSQL.")
    connections: Any = import_module("django.db").connections

    def source() -> Recipe:
        wrapper = connections.create_connection(alias)  # a wrapper that nobody else has, never connected
        given = dict(wrapper.get_connection_params())
        if role := wrapper.settings_dict["OPTIONS"].get("assume_role"):
            given["options"] = f"{given.get('options', '')} -c role={_escaped(role)}".strip()
        return Recipe("", given)

    return source


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
