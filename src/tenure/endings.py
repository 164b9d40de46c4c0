"""What is to be recorded of a run that ended, beside its status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Say how a run ended in detail, when it may be taken up again by itself, and what it leaves.

    `outcome` is at most 16 characters; `retry_ms` counts from the moment of recording, by the database's clock, and
    `None` is at once. `data` is a JSON object; without any, a failure leaves its error.
    """

    outcome: str | None = None
    retry_ms: int | None = None
    data: Mapping[str, Any] | None = None


EndingOf: TypeAlias = Callable[[BaseException | None, Any], Ending]
"""Tell the ending from the callback's exception, or from what it returned; called once, before the row is settled."""
