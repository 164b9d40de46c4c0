"""What may stand in the data column, and how an error's text is made fit for it (C6.2, C6.3)."""

from __future__ import annotations

import collections
import enum
import json
import math
import types
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tenure import InvalidJobDataError
from tenure.data import DATA_LIMIT_BYTES, ERROR_LIMIT_BYTES, clean_text, describe_error, encode_data
from tenure.embedded import EmbeddedPostgres

ANY_TEXT = st.text(st.characters(), max_size=20) | st.text(
    st.sampled_from('\0\\u0"\ud83d\ude00é\u2028\x7f\x1f'), max_size=8
)
LEAVES = st.none() | st.booleans() | st.integers() | st.integers(-(10**400), 10**400) | st.floats() | ANY_TEXT
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4), max_leaves=12
)


@pytest.fixture(scope="module")
def connection(server: EmbeddedPostgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.url(), autocommit=True) as opened:
        yield opened


def stored(connection: psycopg.Connection[Any], text: str | None) -> Any:
    """Send JSON text to jsonb and read it back as text, as tenure does."""
    row = connection.execute("SELECT CAST(CAST(%s AS jsonb) AS text)", [text]).fetchone()
    assert row is not None
    return json.loads(row[0], parse_float=str, parse_int=str) if row[0] is not None else None


def same(given_value: Any, back: Any) -> bool:
    """Compare, numbers by value: jsonb keeps numerics, which give 1e300 back as its digits."""
    if isinstance(given_value, bool) or given_value is None or isinstance(given_value, str):
        return bool(given_value == back and type(given_value) is type(back))
    if isinstance(given_value, int):
        return int(back) == given_value
    if isinstance(given_value, float):
        return float(back) == given_value
    if isinstance(given_value, dict):
        return given_value.keys() == back.keys() and all(same(v, back[k]) for k, v in given_value.items())
    return len(given_value) == len(back) and all(map(same, given_value, back))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(ANY_TEXT, VALUES, max_size=5))
@example({"": "\\u0000", "\\": "\\\\u0000", "x": ["\\\\\\u0000"]})
@example({"x": 1e308, "y": -5e-324, "z": 10**400, "w": -0.0})
def test_what_is_accepted_is_stored_and_given_back_equal(
    connection: psycopg.Connection[Any], data: dict[str, Any]
) -> None:
    """C6.2: settling never fails for its data once `encode_data` has accepted it; and nothing sound is refused."""
    try:
        text = encode_data(data)
    except InvalidJobDataError:
        assert unsound(data)
        return
    assert not unsound(data)
    assert same(data, stored(connection, text))


def unsound(value: Any) -> bool:
    """Say, apart from the code under test, whether PostgreSQL cannot hold a value made of plain JSON kinds."""
    if isinstance(value, str):
        return "\0" in value or any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(unsound(k) or unsound(v) for k, v in value.items())
    return isinstance(value, list) and any(map(unsound, value))


class Color(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("data", "back"),
    [
        (types.MappingProxyType({"a": 1}), {"a": "1"}),
        (collections.OrderedDict(b=1, a=2), {"b": "1", "a": "2"}),
        (collections.defaultdict(list, {"a": [1]}), {"a": ["1"]}),
        ({"a": (1, 2)}, {"a": ["1", "2"]}),
        ({"a": Color.RED, Color.RED: 1}, {"a": "red", "red": "1"}),
        ({}, {}),
    ],
    ids=["proxy", "ordered", "default", "tuple", "enum", "empty"],
)
def test_mappings_of_every_kind(connection: psycopg.Connection[Any], data: Any, back: Any) -> None:
    """C6.2: a JSON object is what any mapping with string keys comes to."""
    assert stored(connection, encode_data(data)) == back


def test_no_data_is_no_data() -> None:
    """C6.1: `None` leaves the column NULL."""
    assert encode_data(None) is None


@pytest.mark.parametrize("depth", [10, 200, 100_000])
def test_depth(connection: psycopg.Connection[Any], depth: int) -> None:
    """C6.2: nesting that Python cannot write is refused with the same error; what is accepted is stored."""
    data: dict[str, Any] = {"x": None}
    for _ in range(depth):
        data = {"x": data}
    if depth > 10_000:
        with pytest.raises(InvalidJobDataError, match="nested too deeply"):
            encode_data(data)
    else:
        text = encode_data(data)
        assert text is not None
        assert stored(connection, text) is not None
    while data["x"] is not None:  # a deep dict is unmade step by step
        data = data["x"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"x": float("nan")}, "JSON"),
        ({"x": 10**5000}, "JSON"),
        ({"x": object()}, "object"),
        ({"x": {1, 2}}, "set"),
        ({"x": "\0"}, "NUL"),
        ({"x": "\ud800"}, "surrogate"),
        ({1: 2}, "int"),
        ({"x": {None: 2}}, "NoneType"),
        ([], "list"),
        ("{}", "str"),
    ],
)
def test_refusals_name_what_is_wrong(data: Any, said: str) -> None:
    """C6.2, C11: InvalidJobDataError, which is a ValueError too."""
    with pytest.raises(InvalidJobDataError, match=said) as caught:
        encode_data(data)
    assert isinstance(caught.value, ValueError)


def test_the_limit_counts_bytes_of_utf_8() -> None:
    """C6.2: 1 MiB exactly is accepted, with characters of one, two and four bytes; a byte more is not."""
    for character in ("y", "é", "😀"):
        count, rest = divmod(DATA_LIMIT_BYTES - len('{"x":""}'), len(character.encode()))
        text = encode_data({"x": character * count + "y" * rest})
        assert text is not None
        assert len(text.encode()) == DATA_LIMIT_BYTES
        with pytest.raises(InvalidJobDataError, match=f"{DATA_LIMIT_BYTES + 1} bytes"):
            encode_data({"x": character * count + "y" * rest + "y"})


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), max_size=200), st.integers(0, 60))
def test_cleaned_text_is_storable_and_no_longer_than_asked(
    connection: psycopg.Connection[Any], text: str, limit_bytes: int
) -> None:
    """C6.3: whatever the text, PostgreSQL takes it; text that was sound and short enough is left as it is."""
    cleaned = clean_text(text, limit_bytes)
    assert len(cleaned.encode()) <= limit_bytes
    assert stored(connection, encode_data({"error": cleaned})) == {"error": cleaned}
    if text.isprintable() and len(text.encode("utf-8", "replace")) <= limit_bytes:
        assert cleaned == text
    assert not set(cleaned) & {chr(code) for code in range(32)} - {"\n", "\t"}
    assert clean_text(cleaned, limit_bytes) == cleaned


class SilentError(Exception):
    def __str__(self) -> str:
        raise SystemExit


class NoTextError(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307


class SlyText(str):
    __slots__ = ()

    def __format__(self, spec: str) -> str:
        raise ZeroDivisionError

    def __getitem__(self, key: Any) -> str:
        raise ZeroDivisionError

    def __bool__(self) -> bool:
        raise ZeroDivisionError


class SlyError(Exception):
    def __str__(self) -> str:
        return SlyText("sly")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a\nb\tc"), "ValueError: a\nb\tc"),
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError(), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("a\0\x1b[31m\x7fb"), "ValueError: a  [31m b"),
        (ValueError("\ud800"), "ValueError: ?"),
        (SilentError(), "SilentError: <its text could not be made>"),
        (NoTextError(), "NoTextError: <its text could not be made>"),
        (SlyError(), "SlyError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_are_described_whatever_they_are(error: BaseException, text: str) -> None:
    """C6.3: describing an error never raises."""
    described = describe_error(error)
    assert described["error"].startswith(text)
    assert encode_data(described) is not None


def test_long_errors_are_cut_between_characters() -> None:
    """C6.3: 8 KiB of UTF-8, whole characters."""
    text = describe_error(ValueError("😀" * 1_000_000))["error"]
    assert ERROR_LIMIT_BYTES - 4 < len(text.encode()) <= ERROR_LIMIT_BYTES
    assert text.rstrip("😀") == "ValueError: "
