"""What to run, under which name, and for how long a lease holds: checked once, at construction (C2, C3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeGuard

from tenure import identity
from tenure.errors import InvalidJobIdentityOptionsError, InvalidJobLeaseOptionsError

DEFAULT_LEASE_MS: Final = 900_000
DEFAULT_HEARTBEAT_MS: Final = 60_000

_MIN_LEASE_MS: Final = 3
_MAX_LEASE_MS: Final = 2**53 - 1
_MAX_CODE_UNITS: Final = 64
_MAX_RUN_KEY_UNITS: Final = 1_024
_MAX_NAME_CHARACTERS: Final = 256


class JobSchedulerType(StrEnum):
    """Say how often a job runs: once for ever, or once for each run key (C2.4)."""

    INITIAL = "INITIAL"
    SCHEDULE = "SCHEDULE"


class JobSchedulerStatus(StrEnum):
    """Say where a run stands: held by a node, done, or free to be taken again."""

    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAIL = "FAIL"


class _LeftOut:
    """Stand for a parameter that was not given, which is not the same as None (C2.4)."""

    def __repr__(self) -> str:
        return "<left out>"


# Any, so that a signature can say `run_key: str = ...` and a type checker refuses None.
_LEFT_OUT: Final[Any] = _LeftOut()


@dataclass(frozen=True, slots=True, init=False)
class JobAcquireOptions:
    """Name a run and time its lease. An object that exists is valid, so no SQL is ever sent for a bad one (C2.1).

    `code` (1 to 64 UTF-16 code units) and `run_key` (1 to 1,024) are trimmed as ECMAScript trims; `name`, for people
    to read, is kept as it is (at most 256 characters, counted as code points, as PostgreSQL counts).
    A SCHEDULE job needs a run key, an INITIAL job forbids one. `lease_ms` and `heartbeat_ms` are milliseconds; a
    heartbeat of 0 turns renewal off. A parameter left out is not the same as None, which is refused everywhere.

    `lock_key` is what contends: the same on every node and in every language (C2.5). Two options are equal when all
    six parameters come to the same.

    Raises `InvalidJobLeaseOptionsError` (C3) before `InvalidJobIdentityOptionsError` (C2): lease, heartbeat, code,
    type, run key and name are looked at in this order.
    """

    code: str = field(init=False)
    run_key: str | None = field(init=False)
    name: str | None = field(init=False)
    type: JobSchedulerType = field(init=False)
    lease_ms: int = field(init=False)
    heartbeat_ms: int = field(init=False)
    lock_key: str = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        code: str,
        run_key: str = _LEFT_OUT,
        name: str = _LEFT_OUT,
        type: JobSchedulerType | Literal["INITIAL", "SCHEDULE"] = JobSchedulerType.SCHEDULE,
        lease_ms: int = DEFAULT_LEASE_MS,
        heartbeat_ms: int = _LEFT_OUT,
    ) -> None:
        lease = _checked_lease_ms(lease_ms)
        heartbeat = _checked_heartbeat_ms(heartbeat_ms, lease)
        named = _checked_identity("code", code, _MAX_CODE_UNITS)
        kind = _checked_type(type)
        key = _checked_run_key(run_key, kind)
        # The dataclass is frozen: its own __setattr__ refuses.
        put = object.__setattr__
        put(self, "lease_ms", lease)
        put(self, "heartbeat_ms", heartbeat)
        put(self, "code", named)
        put(self, "type", kind)
        put(self, "run_key", key)
        put(self, "name", _checked_name(name))
        put(self, "lock_key", identity.lock_key(type=kind.value, code=named, run_key=key))


def _checked_lease_ms(value: object) -> int:
    if not _is_int(value) or not _MIN_LEASE_MS <= value <= _MAX_LEASE_MS:
        raise InvalidJobLeaseOptionsError(
            f"lease_ms must be an int of {_MIN_LEASE_MS} to {_MAX_LEASE_MS:,} milliseconds; "
            f"{identity.shown(value)} was given. Leave it out for {DEFAULT_LEASE_MS:,}."
        )
    return int.__int__(value)


def _checked_heartbeat_ms(value: object, lease_ms: int) -> int:
    if value is _LEFT_OUT:
        return min(DEFAULT_HEARTBEAT_MS, max(1, lease_ms // 3))
    most = (lease_ms - 1) // 2
    if not _is_int(value) or not 0 <= value <= most:
        raise InvalidJobLeaseOptionsError(
            f"heartbeat_ms must be an int of 0 (no renewal) to {most:,} milliseconds, less than half of lease_ms "
            f"({lease_ms:,}); {identity.shown(value)} was given. Leave it out for a third of the lease, "
            f"at most {DEFAULT_HEARTBEAT_MS:,}."
        )
    return int.__int__(value)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked_identity(name: str, value: object, most: int) -> str:
    text = identity.trim(identity.storable_text(name, value))
    units = identity.utf16_length(text)
    if not 1 <= units <= most:
        raise InvalidJobIdentityOptionsError(
            f"{name} must hold 1 to {most:,} UTF-16 code units once trimmed; {identity.shown(value)} was given, "
            f"which has {units:,}. {'Shorten it, or give its hash.' if units else 'Give text that is not blank.'}"
        )
    return text


def _checked_type(value: object) -> JobSchedulerType:
    if isinstance(value, str):
        text = str.__str__(value)
        if text in JobSchedulerType.__members__:
            return JobSchedulerType[text]
    raise InvalidJobIdentityOptionsError(
        f"type must be JobSchedulerType.SCHEDULE or JobSchedulerType.INITIAL, or its value; "
        f"{identity.shown(value)} was given. Leave it out for SCHEDULE."
    )


def _checked_run_key(value: object, kind: JobSchedulerType) -> str | None:
    if kind is JobSchedulerType.SCHEDULE and value is not _LEFT_OUT:
        return _checked_identity("run_key", value, _MAX_RUN_KEY_UNITS)
    if kind is JobSchedulerType.INITIAL and value is _LEFT_OUT:
        return None
    if value is _LEFT_OUT:
        raise InvalidJobIdentityOptionsError(
            f"run_key must be given for a SCHEDULE job, 1 to {_MAX_RUN_KEY_UNITS:,} UTF-16 code units; it was left "
            "out. Give what tells one run from the next, such as '2026-07-20T03:00:00.000Z'."
        )
    raise InvalidJobIdentityOptionsError(
        f"run_key must be left out for an INITIAL job, which runs once; {identity.shown(value)} was given. "
        "Leave it out (None is not the same), or make the job a SCHEDULE."
    )


def _checked_name(value: object) -> str | None:
    if value is _LEFT_OUT:
        return None
    text = identity.storable_text("name", value)
    if len(text) > _MAX_NAME_CHARACTERS:
        raise InvalidJobIdentityOptionsError(
            f"name must hold at most {_MAX_NAME_CHARACTERS} characters; {identity.shown(value)} was given. Shorten it."
        )
    return text
