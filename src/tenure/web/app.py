"""The application: its pages and its doors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tenure.service import AsyncJobSchedulerService, JobSchedulerService
from tenure.web.acting import Acting
from tenure.web.auth import LOOPBACK_NAMES, Auth
from tenure.web.feed import Feed
from tenure.web.forms import Forms
from tenure.web.guard import Guard
from tenure.web.pages import Pages
from tenure.web.parts import Parts
from tenure.web.problems import Problems
from tenure.web.rendering import STATIC, Renderer, Standing
from tenure.web.source import Source
from tenure.web.streams import Streams


def create_app(
    service: AsyncJobSchedulerService | JobSchedulerService,
    *,
    auth: Auth | None = None,
    writable: bool = False,
    secret: str | bytes | None = None,
    hosts: Collection[str] | None = None,
    title: str = "tenure",
) -> Starlette:
    """Make the page for operators: an ASGI application, for any prefix, that needs no lifespan.

    - `service` is asked, and not closed here; an async one must be of the loop that serves the page.
    - `auth`: a `BasicAuth`, or a function that says who asks. Without it only requests that come straight from this
      machine are answered, and each page says that it is open.
    - `writable`: whether runs and jobs can be acted upon; else the page only shows.
    - `secret` signs forms. Give the same one to all processes that serve the page behind one address; left out, each
      process draws its own.
    - `hosts`: the host names that the page may be called by. Left out, any if there is `auth`, else those of this
      machine alone: a name of somebody else's that leads here would let that page read this one.

    `app.state.feed.close()` ends the live streams, for a server that wants to stop at once; else they end by themselves
    within half a minute.
    """
    source = Source(service)
    renderer = Renderer(Standing(title, writable, auth is None))
    feed = Feed(source)
    pages, streams = Pages(source, renderer), Streams(feed, Parts(renderer))
    acting = Acting(source, renderer, Forms(secret), writable=writable)
    named = LOOPBACK_NAMES if hosts is None and auth is None else hosts
    guard = Middleware(Guard, auth=auth, hosts=named)
    app = Starlette(
        routes=_routes(pages, acting, streams), middleware=[guard], exception_handlers=Problems(renderer).handlers()
    )
    app.state.feed = feed
    return app


def _routes(pages: Pages, acting: Acting, streams: Streams) -> list[BaseRoute]:
    return [
        Route("/", pages.overview),
        Route("/job", pages.job),
        Route("/run", pages.run),
        Route("/why", pages.why),
        Route("/nodes", pages.nodes),
        Route("/act", acting.confirm, methods=["GET"]),
        Route("/act", acting.act, methods=["POST"]),
        Route("/live", streams.live),
        Mount("/static", _Static(directory=STATIC)),
    ]


class _Static(StaticFiles):
    """Serve style and script; each page names them by what they hold, so that a browser may keep them."""

    def file_response(self, *arguments: Any, **keywords: Any) -> Response:
        """Answer with a file."""
        response = super().file_response(*arguments, **keywords)
        response.headers["Cache-Control"] = "private, max-age=86400"
        return response
