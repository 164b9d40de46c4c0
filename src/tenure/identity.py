"""Turn what names a run into its key, exactly as a NestJS node does (C2).

Nothing here knows about options, leases or the database: text goes in, text comes out, or an
`InvalidJobIdentityOptionsError` says which field cannot be used, and why.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final

from tenure.errors import InvalidJobIdentityOptionsError

# What ECMAScript calls white space and line terminators. str.strip() also removes 1c-1f and 85, and leaves feff.
_ECMASCRIPT_BLANKS: Final = (
    "\t\n\v\f\r \u00a0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_V2_KEY: Final = re.compile("v2:([A-Za-z0-9_-]{43})")
_SHOWN_CHARACTERS: Final = 40
_SHOWN_BITS: Final = 128


def trim(text: str) -> str:
    """Remove the white space that ECMAScript's `trim()` removes, at both ends (C2.2)."""
    return text.strip(_ECMASCRIPT_BLANKS)


def utf16_length(text: str) -> int:
    """Count UTF-16 code units, as ECMAScript's `length` does: two for a character above U+FFFF (C2.2)."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def storable_text(field: str, value: object) -> str:
    """Return the value as a plain `str` that PostgreSQL text can hold, subclasses of `str` included (C2.6).

    Raises `InvalidJobIdentityOptionsError`, naming the field, for anything but a `str`, and for NUL and surrogates.
    A surrogate is refused beside its other half too: Python cannot encode the two either.
    """
    if not isinstance(value, str):
        raise InvalidJobIdentityOptionsError(f"{field} must be a str; {shown(value)} was given. Give text.")
    text = str.__str__(value)
    found = _UNSTORABLE.search(text)
    if found is None:
        return text
    kind = "NUL" if found[0] == "\0" else f"the surrogate U+{ord(found[0]):04X}"
    raise InvalidJobIdentityOptionsError(
        f"{field} must hold neither NUL nor surrogates, which PostgreSQL text cannot store; "
        f"{shown(text)} was given, with {kind} at index {found.start()}. Remove or replace it."
    )


def canonical_text(*, type: str, code: str, run_key: str | None) -> str:
    """Spell an identity as ECMAScript's `JSON.stringify` does: this is the text that is hashed (C2.5).

    `code` and `run_key` are taken as they are: trimmed and storable already. `run_key` is None for INITIAL.
    """
    members = {"version": 2, "type": type, "code": code, "runKey": run_key}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


def lock_key(*, type: str, code: str, run_key: str | None) -> str:
    """Return the `v2:` key of a run, the same on every node and in every language (C2.5).

    `code` and `run_key` are taken as they are: trimmed and storable already. `run_key` is None for INITIAL.
    """
    return f"v2:{_digest(canonical_text(type=type, code=code, run_key=run_key))}"


def external_job_id(idempotency_key: str) -> str:
    """Return the id under which a queue of another maker can know this key (C2.7).

    The same key always gives the same id, and different keys different ids: `v2:X` becomes `v2-X`, any other key
    `key-` and its SHA-256. An id is at most 47 letters, digits, `-` and `_`, never only digits, so Celery, RQ and
    BullMQ (which refuses `:` and whole numbers) all take it.

    Raises `InvalidJobIdentityOptionsError` for anything but a `str`, for an empty one, NUL and surrogates.
    """
    key = storable_text("idempotency_key", idempotency_key)
    if not key:
        raise InvalidJobIdentityOptionsError(
            "idempotency_key must hold at least 1 character; '' was given. Give the idempotency_key of a lease."
        )
    v2 = _V2_KEY.fullmatch(key)
    return f"v2-{v2[1]}" if v2 else f"key-{_digest(key)}"


def shown(value: object) -> str:
    """Show what was given, in an error: short, in one line, without raw control characters (C11).

    Only text, numbers, booleans and None are quoted. Anything else is named by its type, for its `repr` may be long,
    may fail, and may tell secrets.
    """
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        text = str.__str__(value)
        return repr(text) if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]!r}… ({len(text):,} long)"
    if isinstance(value, int):
        bits = int.bit_length(value)
        # Python refuses to print very long integers.
        return int.__repr__(value) if bits <= _SHOWN_BITS else f"an int of {bits:,} bits"
    if isinstance(value, float):
        return float.__repr__(value)
    return f"a value of type {type(value).__name__!r}"


def _digest(text: str) -> str:
    """Return the SHA-256 of the UTF-8 text, as base64url without padding: 43 characters."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode("ascii")
