"""The scheduler that a command line names as `module:attribute`, imported from the working directory or `sys.path`."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import Any

import click

from tenure.scheduling import AsyncScheduler, Scheduler

_HINT = "MODULE:SCHEDULER"


def find_scheduler(place: str) -> Scheduler | AsyncScheduler:
    """Import the module and give its scheduler; raises `click.BadParameter`, which says what is wrong and the mend."""
    module, colon, path = place.partition(":")
    if not (colon and module and path):
        raise _bad(f"{place!r} does not name a scheduler. Write package.module:scheduler.")
    if path.endswith(")"):
        raise _bad(f"{path!r} is a call. Name the scheduler itself, made when its module is imported.")
    found: Any = _imported(module)
    for number, name in enumerate(names := path.split(".")):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise _bad(f"{':'.join([module, '.'.join(names[:number])]).rstrip(':')} has no {name!r}.") from None
    if not isinstance(found, Scheduler | AsyncScheduler):
        raise _bad(f"{place} is {_kind_of(found)}, not a Scheduler or an AsyncScheduler.")
    return found


def _imported(module: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise _bad(f"There is no module {error.name!r} in {here} or on sys.path.") from None
        raise _fails(module, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module of the user's may raise anything
        raise _fails(module, error) from None


def _fails(module: str, error: BaseException) -> click.BadParameter:
    """Say which line of which file raised what: the innermost one, or that of a syntax error."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename}, line {where.lineno}"
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}"
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return _bad(f"{module} cannot be imported: {type(error).__name__}: {said} ({place})")


def _kind_of(found: object) -> str:
    if callable(found) and not isinstance(found, type):
        return "a function, which is not called here"
    return f"a {type(found).__name__}"


def _bad(message: str) -> click.BadParameter:
    return click.BadParameter(" ".join(message.split("\n")), param_hint=_HINT)
