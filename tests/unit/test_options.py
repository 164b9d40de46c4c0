"""What JobAcquireOptions takes, what it refuses, and what it says (C1.1, C2.1 to C2.6, C3.1 to C3.3)."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import InvalidJobIdentityOptionsError, InvalidJobLeaseOptionsError, InvalidJobOptionsError
from tenure.options import (
    DEFAULT_HEARTBEAT_MS,
    DEFAULT_LEASE_MS,
    JobAcquireOptions,
    JobSchedulerStatus,
    JobSchedulerType,
)

BLANKS = "\t\n\v\f\r \u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
BLANK_TEXT = st.text(st.sampled_from(BLANKS))
STORABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
SOLID = st.characters(exclude_categories=["Cs"], exclude_characters="\0" + BLANKS)
LEASE = st.integers(3, 2**53 - 1)
CHECKED_IN_ORDER = ["lease_ms", "heartbeat_ms", "code", "type", "run_key", "name"]


class Small(IntEnum):
    TEN = 10


class Word(StrEnum):
    CODE = "code"
    KIND = "INITIAL"


class OldWord(str, Enum):  # noqa: UP042 - what applications wrote before StrEnum
    KIND = "SCHEDULE"


class Number(int):
    def __repr__(self) -> str:
        return "a\nlie"

    def __int__(self) -> int:
        return 0


class IndexOnly:
    def __index__(self) -> int:
        return 1_000


def options(**given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "c", "run_key": "r", **given})


def refusal(**given: Any) -> str:
    with pytest.raises(InvalidJobOptionsError) as caught:
        options(**given)
    return str(caught.value)


class TestNames:
    """C1.1."""

    def test_fields_are_those_of_the_reference(self) -> None:
        assert list(inspect.signature(JobAcquireOptions).parameters) == [
            "code",
            "run_key",
            "name",
            "type",
            "lease_ms",
            "heartbeat_ms",
        ]

    def test_defaults_are_those_of_the_reference(self) -> None:
        assert (DEFAULT_LEASE_MS, DEFAULT_HEARTBEAT_MS) == (900_000, 60_000)

    def test_enums_are_those_of_the_reference(self) -> None:
        assert [*JobSchedulerType] == ["INITIAL", "SCHEDULE"]
        assert [*JobSchedulerStatus] == ["RUNNING", "SUCCESS", "FAIL"]

    def test_parameters_are_given_by_name_only(self) -> None:
        with pytest.raises(TypeError):
            JobAcquireOptions("c", run_key="r")  # type: ignore[call-arg]

    def test_a_type_checker_refuses_what_construction_refuses(self) -> None:
        """mypy fails on an `ignore` that ignores nothing, so each line here is two tests."""
        with pytest.raises(InvalidJobIdentityOptionsError):
            JobAcquireOptions(code="c", run_key=None)  # type: ignore[arg-type]
        with pytest.raises(InvalidJobIdentityOptionsError):
            JobAcquireOptions(code="c", run_key="r", name=None)  # type: ignore[arg-type]
        with pytest.raises(InvalidJobIdentityOptionsError):
            JobAcquireOptions(code="c", run_key="r", type="OTHER")  # type: ignore[arg-type]
        with pytest.raises(InvalidJobLeaseOptionsError):
            JobAcquireOptions(code="c", run_key="r", lease_ms=1e3)  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            options().code = "d"  # type: ignore[misc]

    def test_what_is_left_out_gets_its_default(self) -> None:
        made = JobAcquireOptions(code="c", run_key="r")

        assert (made.name, made.type, made.lease_ms, made.heartbeat_ms) == (
            None,
            JobSchedulerType.SCHEDULE,
            900_000,
            60_000,
        )


class TestOrder:
    """C2.1: lease, heartbeat, code, type, run key, and then the name."""

    @pytest.mark.parametrize("first", range(len(CHECKED_IN_ORDER)))
    def test_the_first_bad_one_is_named(self, first: int) -> None:
        bad = dict.fromkeys(CHECKED_IN_ORDER[first:])

        assert refusal(**bad).startswith(f"{CHECKED_IN_ORDER[first]} must")


class TestCodeAndRunKey:
    """C2.2 and C2.6."""

    @given(BLANK_TEXT, st.text(SOLID, min_size=1, max_size=32), BLANK_TEXT)
    def test_blanks_around_make_no_difference(self, before: str, text: str, after: str) -> None:
        padded = JobAcquireOptions(code=before + text + after, run_key=after + text + before)

        assert (padded.code, padded.run_key) == (text, text)
        assert padded == JobAcquireOptions(code=text, run_key=text)
        assert padded.lock_key == JobAcquireOptions(code=text, run_key=text).lock_key

    @given(st.text(STORABLE, min_size=1, max_size=90).map(lambda text: f"x{text}x"))
    def test_a_code_has_at_most_64_utf16_units(self, code: str) -> None:
        units = sum(2 if character > "\uffff" else 1 for character in code)

        if units <= 64:
            assert options(code=code).code == code
        else:
            assert refusal(code=code).startswith("code must hold 1 to 64 UTF-16 code units once trimmed; ")

    @pytest.mark.parametrize(("field", "most"), [("code", 64), ("run_key", 1_024)])
    @pytest.mark.parametrize(("character", "units"), [("a", 1), ("é", 1), ("\uffff", 1), ("😀", 2)])
    def test_the_limit_is_counted_after_trimming(self, field: str, most: int, character: str, units: int) -> None:
        fits = character * (most // units)

        assert getattr(options(**{field: f"  {fits}\n"}), field) == fits
        message = refusal(**{field: fits + character})
        assert f"{field} must hold 1 to {most:,} UTF-16 code units" in message
        assert f"which has {most + units:,}" in message

    @pytest.mark.parametrize("field", ["code", "run_key"])
    @pytest.mark.parametrize("blank", ["", " ", BLANKS])
    def test_blank_text_is_refused(self, field: str, blank: str) -> None:
        assert refusal(**{field: blank}).startswith(f"{field} must hold 1 to")

    @pytest.mark.parametrize("field", ["code", "run_key", "name"])
    @pytest.mark.parametrize("bad", [None, 1, True, 1.5, b"a", ["a"], {}, object(), float("nan")], ids=type)
    def test_only_text_will_do(self, field: str, bad: object) -> None:
        with pytest.raises(InvalidJobIdentityOptionsError, match=rf"^{field} must be a str; .* was given"):
            options(**{field: bad})

    @pytest.mark.parametrize("field", ["code", "run_key", "name"])
    @pytest.mark.parametrize("bad", ["\0", "a\0b", "\ud800", "a\udfffb", "\ud83d" + "\ude00"])
    def test_what_postgresql_cannot_hold_is_refused(self, field: str, bad: str) -> None:
        with pytest.raises(InvalidJobIdentityOptionsError, match=rf"^{field} must hold neither NUL nor surrogates"):
            options(**{field: bad})

    def test_subclasses_of_str_become_plain(self) -> None:
        made = options(code=Word.CODE, run_key=Word.CODE, name=Word.CODE)

        assert {type(made.code), type(made.run_key), type(made.name)} == {str}
        assert made == options(code="code", run_key="code", name="code")

    @given(st.text(SOLID, min_size=1, max_size=32), st.text(SOLID, min_size=1, max_size=32))
    def test_the_key_depends_on_the_identity_alone(self, code: str, run_key: str) -> None:
        made = JobAcquireOptions(code=code, run_key=run_key)
        other = JobAcquireOptions(code=code, run_key=run_key, name="n", lease_ms=10, heartbeat_ms=0)

        assert made.lock_key == other.lock_key
        assert made.lock_key != JobAcquireOptions(code=code, type="INITIAL").lock_key
        assert (made.lock_key == JobAcquireOptions(code=run_key, run_key=code).lock_key) == (code == run_key)


class TestType:
    """C2.3 and C2.4."""

    @pytest.mark.parametrize("kind", [JobSchedulerType.SCHEDULE, "SCHEDULE", OldWord.KIND])
    def test_schedule_as_enum_or_value(self, kind: Any) -> None:
        assert options(type=kind).type is JobSchedulerType.SCHEDULE

    @pytest.mark.parametrize("kind", [JobSchedulerType.INITIAL, "INITIAL", Word.KIND])
    def test_initial_as_enum_or_value_has_no_run_key(self, kind: Any) -> None:
        made = JobAcquireOptions(code="c", type=kind)

        assert made.type is JobSchedulerType.INITIAL
        assert made.run_key is None

    @pytest.mark.parametrize(
        "bad", [None, "schedule", "SCHEDULE ", "", 1, False, [], {}, JobSchedulerStatus.FAIL, b"INITIAL"]
    )
    def test_anything_else_is_refused(self, bad: Any) -> None:
        with pytest.raises(InvalidJobIdentityOptionsError, match=r"^type must be .*SCHEDULE.*INITIAL.* was given"):
            options(type=bad)

    def test_schedule_needs_a_run_key(self) -> None:
        with pytest.raises(InvalidJobIdentityOptionsError, match=r"^run_key must be given for a SCHEDULE job"):
            JobAcquireOptions(code="c")

    @pytest.mark.parametrize("given_key", [None, "", " ", "r", 0, []])
    def test_initial_forbids_any_run_key(self, given_key: Any) -> None:
        with pytest.raises(InvalidJobIdentityOptionsError, match=r"^run_key must be left out for an INITIAL job"):
            JobAcquireOptions(code="c", type="INITIAL", run_key=given_key)


class TestName:
    """C2.6: at most 256 characters as PostgreSQL counts them, and kept as given."""

    @pytest.mark.parametrize("name", ["", "  Đơn hàng ", "😀" * 256, "\x01\x85"])
    def test_a_name_is_kept_as_given(self, name: str) -> None:
        assert options(name=name).name == name

    @pytest.mark.parametrize("character", ["a", "😀"])
    def test_a_longer_name_is_refused(self, character: str) -> None:
        with pytest.raises(InvalidJobIdentityOptionsError, match=r"^name must hold at most 256 characters; .*257 long"):
            options(name=character * 257)


class TestTiming:
    """C3.1 to C3.3."""

    @given(LEASE)
    def test_a_heartbeat_left_out_always_fits_its_lease(self, lease_ms: int) -> None:
        made = options(lease_ms=lease_ms)

        assert (made.lease_ms, made.heartbeat_ms) == (lease_ms, min(60_000, max(1, lease_ms // 3)))
        assert options(lease_ms=lease_ms, heartbeat_ms=made.heartbeat_ms) == made

    @given(LEASE, st.data())
    def test_a_heartbeat_is_below_half_the_lease(self, lease_ms: int, data: st.DataObject) -> None:
        heartbeat_ms = data.draw(st.integers(0, lease_ms) | st.integers(-1, 1).map(lambda off: lease_ms // 2 + off))

        if 2 * heartbeat_ms < lease_ms:
            assert options(lease_ms=lease_ms, heartbeat_ms=heartbeat_ms).heartbeat_ms == heartbeat_ms
        else:
            message = refusal(lease_ms=lease_ms, heartbeat_ms=heartbeat_ms)
            assert f"heartbeat_ms must be an int of 0 (no renewal) to {(lease_ms - 1) // 2:,} millis" in message
            assert f"{heartbeat_ms} was given" in message

    @pytest.mark.parametrize(
        "lease_ms", [2, 0, -1, 2**53, 10**5_000, None, True, 1e3, "1000", IndexOnly(), [1_000]], ids=type
    )
    def test_a_bad_lease_is_refused(self, lease_ms: Any) -> None:
        with pytest.raises(
            InvalidJobLeaseOptionsError, match=r"^lease_ms must be an int of 3 to 9,007,199,254,740,991 milli"
        ):
            options(lease_ms=lease_ms)

    @pytest.mark.parametrize("heartbeat_ms", [-1, None, True, False, 0.0, "1", IndexOnly(), [1]])
    def test_a_bad_heartbeat_is_refused(self, heartbeat_ms: Any) -> None:
        with pytest.raises(InvalidJobLeaseOptionsError, match=r"^heartbeat_ms must be an int of 0"):
            options(heartbeat_ms=heartbeat_ms)

    def test_subclasses_of_int_become_plain(self) -> None:
        made = options(lease_ms=Number(1_000), heartbeat_ms=Small.TEN)

        assert (type(made.lease_ms), type(made.heartbeat_ms)) == (int, int)
        assert (made.lease_ms, made.heartbeat_ms) == (1_000, 10)


class TestErrors:
    """C11: the field, the limit, what was given, the fix; short, in one line, nothing raw."""

    @given(
        st.sampled_from(CHECKED_IN_ORDER),
        st.text() | st.integers() | st.floats() | st.binary() | st.none() | st.lists(st.text()) | st.booleans(),
    )
    def test_a_refusal_is_one_short_printable_line(self, field: str, value: object) -> None:
        try:
            options(**{field: value})
        except InvalidJobOptionsError as error:
            text = str(error)
            assert text.startswith(f"{field} must")
            assert text.isprintable()
            assert len(text) < 800

    @pytest.mark.parametrize(
        "given_options",
        [
            {"lease_ms": Number(1)},
            {"heartbeat_ms": -1},
            {"code": ""},
            {"run_key": ""},
            {"run_key": "r", "type": "INITIAL"},
            {"type": "\x1b[31m"},
            {"name": "n" * 1_000_000},
            {"name": None},
        ],
        ids=str,
    )
    def test_a_refusal_tells_what_was_given_and_how_to_mend_it(self, given_options: dict[str, Any]) -> None:
        before, _, fix = refusal(**given_options).partition(" was given")

        assert len(before) < 250
        assert fix.endswith(".")
        assert any(word in fix for word in ("Leave", "Give", "Shorten"))

    def test_values_may_be_caught_as_value_errors(self) -> None:
        with pytest.raises(ValueError, match="code"):
            options(code="")


class TestObject:
    @pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(JobAcquireOptions)])
    def test_nothing_can_be_changed(self, field: str) -> None:
        made = options()

        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field, "x")
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(made, field)
        assert made == options()

    def test_nothing_can_be_added(self) -> None:
        assert not hasattr(options(), "__dict__")

    @pytest.mark.parametrize(
        "changed",
        [
            {"code": "x"},
            {"run_key": "x"},
            {"name": "x"},
            {"lease_ms": 900_001},
            {"heartbeat_ms": 1},
        ],
        ids=str,
    )
    def test_every_parameter_tells_two_options_apart(self, changed: dict[str, Any]) -> None:
        assert options(**changed) != options()
        assert hash(options(**changed)) != hash(options())

    def test_equal_options_are_one_member_of_a_set(self) -> None:
        assert len({options(), options(code=" c "), options(heartbeat_ms=60_000)}) == 1

    @pytest.mark.parametrize(
        "again",
        [copy.copy, copy.deepcopy, *(lambda o, p=p: pickle.loads(pickle.dumps(o, p)) for p in range(2, 6))],
    )
    @pytest.mark.parametrize("made", [options(name="n"), JobAcquireOptions(code="c", type="INITIAL")], ids=["S", "I"])
    def test_it_can_be_copied_and_pickled(self, made: JobAcquireOptions, again: Any) -> None:
        other = again(made)

        assert other == made
        assert (other.lock_key, other.run_key, other.type) == (made.lock_key, made.run_key, made.type)

    def test_its_repr_names_every_parameter(self) -> None:
        assert repr(options(name="n", lease_ms=9)) == (
            "JobAcquireOptions(code='c', run_key='r', name='n', "
            "type=<JobSchedulerType.SCHEDULE: 'SCHEDULE'>, lease_ms=9, heartbeat_ms=3)"
        )
