"""Every vector that a NestJS node computed comes out the same here (C2, C3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenure import errors
from tenure.options import JobAcquireOptions

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "identity.json").read_text(encoding="utf-8")
)
IDENTITY = ("code", "run_key", "type")


def plain(value: Any) -> Any:
    """Turn `{"$float": "NaN"}` into that float, wherever it stands."""
    if isinstance(value, dict):
        return float(value["$float"]) if "$float" in value else {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def cases(name: str) -> list[Any]:
    """Return a list of vectors as parameters, each with an id that says where to look and what it holds."""
    return [pytest.param(entry, id=case_id(number, entry)) for number, entry in enumerate(VECTORS[name])]


def case_id(number: int, entry: dict[str, Any]) -> str:
    given = entry.get("options", {name: entry[name] for name in IDENTITY if name in entry})
    text = json.dumps(given, ensure_ascii=True, separators=(",", ":")).replace('"', "").replace("\\", "/")
    return f"{number:03d}-{entry['group']}-{text[:48]}"


def build(given: dict[str, Any]) -> JobAcquireOptions:
    return JobAcquireOptions(**plain(given))


def identity_of(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in IDENTITY if name in entry}


def test_the_vectors_are_all_here() -> None:
    """A list cut short, or lost, would pass in silence."""
    assert {name: len(entries) for name, entries in VECTORS.items()} == {
        "valid": 266,
        "rejected": 37,
        "invalid": 97,
        "timing": 56,
    }


@pytest.mark.parametrize("entry", cases("valid"))
def test_valid_options_have_the_key_of_the_other_node(entry: dict[str, Any]) -> None:
    options = build(identity_of(entry))

    assert (options.lock_key, options.code) == (entry["lock_key"], entry["stored_code"])


@pytest.mark.parametrize("entry", cases("rejected"))
def test_what_postgresql_cannot_store_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidJobIdentityOptionsError, match=r"NUL|surrogate"):
        build(identity_of(entry))


@pytest.mark.parametrize("entry", cases("invalid"))
def test_invalid_options_raise_the_error_of_the_vector(entry: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidJobOptionsError) as caught:
        build(entry["options"])

    assert type(caught.value).__name__ == entry["error"]


@pytest.mark.parametrize("entry", cases("timing"))
def test_timing_comes_out_as_the_vector_says(entry: dict[str, Any]) -> None:
    given = {"code": "c", "run_key": "r", **entry["options"]}

    if "error" in entry:
        with pytest.raises(errors.InvalidJobOptionsError) as caught:
            build(given)
        assert type(caught.value).__name__ == entry["error"]
    else:
        options = build(given)
        assert (options.lease_ms, options.heartbeat_ms) == (entry["lease_ms"], entry["heartbeat_ms"])
