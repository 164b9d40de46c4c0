"""What signals ask of a scheduler, one after the other (C10.8)."""

from __future__ import annotations

from collections.abc import Callable


class Told:
    """Do what signals ask for: the first, the second, and any after that."""

    def __init__(self, *asked: Callable[[], object]) -> None:
        self._asked = list(asked)

    def __call__(self) -> None:
        (self._asked.pop(0) if len(self._asked) > 1 else self._asked[0])()


def interrupt() -> None:
    """End at once, as ^C ends a program."""
    raise KeyboardInterrupt
