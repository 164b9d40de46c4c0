"""Templates, filled: everything that is put into them is escaped."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from tenure.operating import Health, RunState
from tenure.web.guard import WHO
from tenure.web.views import nodes, runs, words
from tenure.web.views.jobs import why_link
from tenure.web.views.rules import rules_of

FOLDER: Final = Path(__file__).parent
STATIC: Final = FOLDER / "static"


class Standing(NamedTuple):
    """Say what every page tells of how it is served."""

    title: str
    writable: bool
    open: bool
    """Nobody is asked who they are."""


class Renderer:
    """Fill the templates for one page of operators."""

    def __init__(self, standing: Standing) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        known: dict[str, Any] = self._environment.globals
        known.update(_SHOWN, standing=standing, version=_version())
        self.parts: Any = self._environment.get_template("parts.html").module
        """The macros, to be called one by one; each gives safe text."""

    def page(self, request: Request, template: str, *, status: int = 200, **shown: Any) -> HTMLResponse:
        """Fill a page."""
        text = self._environment.get_template(template).render(who=request.scope.get(WHO), **shown)
        return HTMLResponse(text, status)


def _version() -> str:
    """Name what the style and the script hold, so that a browser keeps them until they change."""
    return sha256(b"".join(path.read_bytes() for path in sorted(STATIC.iterdir()))).hexdigest()[:12]


_SHOWN: Final[dict[str, Any]] = {
    "when": words.when,
    "since": words.since,
    "exact": words.exact,
    "left": words.left,
    "share_left": words.share_left,
    "lease_until": runs.lease_until,
    "took": words.took,
    "tone_of": words.tone_of,
    "slug": words.slug,
    "machine": words.machine,
    "in_full": words.in_full,
    "in_zone": words.in_zone,
    "rules_of": rules_of,
    "living": nodes.living,
    "clock_words": nodes.clock_words,
    "disagrees": nodes.disagrees,
    "why_link": why_link,
    "row_element": runs.row_element,
    "may_release": runs.may_release,
    "may_retry": runs.may_retry,
    "may_skip": runs.may_skip,
    "pretty": runs.pretty,
    "urlencode": urlencode,
    "Health": Health,
    "RunState": RunState,
}
