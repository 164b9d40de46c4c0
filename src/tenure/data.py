"""What may stand in the `data` column: a JSON object that PostgreSQL can store, checked before any SQL (C6.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from tenure.errors import InvalidJobDataError

DATA_LIMIT_BYTES = 1024 * 1024
ERROR_LIMIT_BYTES = 8 * 1024

_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_CONTROL = {code: " " for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\n\t"}


def encode_data(data: Mapping[str, Any] | None) -> str | None:
    """Give the JSON text of `data`, or raise `InvalidJobDataError` saying what cannot be stored."""
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise InvalidJobDataError(f"data must be a JSON object (a dict with string keys), not {type(data).__name__}.")
    text = _dump(data)
    if _ESCAPED_NUL.search(text):
        raise InvalidJobDataError("data holds a NUL character, which PostgreSQL cannot store; remove it.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidJobDataError("data holds an unpaired surrogate, which is no text; replace it.") from None
    if size > DATA_LIMIT_BYTES:
        raise InvalidJobDataError(
            f"data is {size} bytes of JSON; the limit is {DATA_LIMIT_BYTES}. Store a reference to it."
        )
    return text


def encode_checkpoint(data: Mapping[str, Any]) -> str:
    """Give the JSON text of a checkpoint, or raise `InvalidJobDataError` saying what cannot be stored."""
    if (text := encode_data(data)) is None:
        raise InvalidJobDataError("data of a checkpoint must be a JSON object, not None. An empty one is a checkpoint.")
    return text


def describe_error(error: BaseException) -> dict[str, Any]:
    """Give `{"error": "TypeName: message"}`, always storable, whatever the exception's text holds (C6.3)."""
    try:
        message = str.__str__(str(error))  # a subclass of str may do anything
    except BaseException:  # noqa: BLE001 - a broken __str__ must not hide the error that it belongs to
        message = "<its text could not be made>"
    name = type(error).__name__
    return {"error": clean_text(f"{name}: {message}" if message else name, ERROR_LIMIT_BYTES)}


def clean_text(text: str, limit_bytes: int) -> str:
    """Make text storable: no NUL or other control characters, no lone surrogates, at most so many bytes of UTF-8."""
    sound = text[:limit_bytes].translate(_CONTROL).encode("utf-8", "replace")
    return sound[:limit_bytes].decode("utf-8", "ignore")


def _dump(data: Mapping[str, Any]) -> str:
    try:
        _check_keys(dict(data))
        return json.dumps(dict(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except InvalidJobDataError:
        raise
    except RecursionError:
        raise InvalidJobDataError("data is nested too deeply, or holds itself.") from None
    except (TypeError, ValueError) as error:
        raise InvalidJobDataError(f"data cannot be written as JSON: {error}. Convert it first.") from None


def _check_keys(value: object) -> None:
    """Refuse keys that JSON would silently turn into text, at every depth."""
    if isinstance(value, dict):
        for key, inner in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise InvalidJobDataError(
                    f"data has a key of type {type(key).__name__}; JSON objects have string keys."
                )
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[object]", value):
            _check_keys(inner)
