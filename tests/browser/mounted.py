"""Serve the page as a part of an application: under a prefix, beside Django, with an async service."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import uvicorn
from django.conf import settings  # type: ignore[import-untyped]
from django.core.asgi import get_asgi_application  # type: ignore[import-untyped]
from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]
from django.urls import path  # type: ignore[import-untyped]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from tenure import AsyncJobSchedulerService
from tenure.web import create_app


async def who(request: Request) -> str | Response | None:
    """Say who asks, as an application's own session would."""
    user = request.headers.get("x-user")
    return RedirectResponse("/login") if user == "guest" else user


def elsewhere(_request: HttpRequest) -> HttpResponse:
    """Be some other page of the application."""
    return HttpResponse("Django is here.")


urlpatterns = [path("site/elsewhere", elsewhere), path("elsewhere", elsewhere)]


def stripped(page: ASGIApp) -> ASGIApp:
    """Call the page as Litestar does: the prefix is cut off and told nowhere, and each path ends with a slash."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        cut = scope["path"].removeprefix(scope["root_path"]).rstrip("/")
        await page({**scope, "path": f"{cut}/", "root_path": ""}, receive, send)

    return call


async def main() -> None:
    """Serve until a signal ends it."""
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")
    async with AsyncJobSchedulerService(os.environ["TENURE_DATABASE_URL"]) as service:
        page = create_app(service, auth=who)
        application = Starlette(
            routes=[
                Mount("/ops/tenure", page),
                Mount("/cut/off", stripped(page)),
                Mount("/open", create_app(service)),
                Mount("/named", create_app(service, hosts=["ops.example"])),
                Mount("/site", get_asgi_application()),
            ]
        )
        with socket.create_server(("127.0.0.1", 0)) as listening:
            print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
            config = uvicorn.Config(application, lifespan="off", log_level="warning", timeout_graceful_shutdown=2)
            signal.signal(signal.SIGTERM, lambda *_: None)  # the server hands on what has ended it
            await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(main())
