"""Serve the page as a part of an application of each framework, under a prefix, with an async service."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import uvicorn
from django.conf import settings  # type: ignore[import-untyped]
from django.core.asgi import get_asgi_application  # type: ignore[import-untyped]
from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]
from django.urls import path  # type: ignore[import-untyped]
from fastapi import FastAPI
from litestar import Litestar, asgi
from litestar.types import Receive as LitestarReceive
from litestar.types import Scope as LitestarScope
from litestar.types import Send as LitestarSend
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from tenure import AsyncJobSchedulerService
from tenure.web import create_app


async def who(request: Request) -> str | Response | None:
    """Say who asks, as an application's own session would."""
    user = request.headers.get("x-user")
    return RedirectResponse("/login") if user == "guest" else user


def elsewhere(_request: HttpRequest) -> HttpResponse:
    """Be some other page of the application."""
    return HttpResponse("Django is here.")


urlpatterns = [path("elsewhere", elsewhere)]


def starlette(service: AsyncJobSchedulerService) -> ASGIApp:
    """Mount it beside others of its kind."""
    return Starlette(
        routes=[
            Mount("/ops/tenure", create_app(service, auth=who)),
            Mount("/open", create_app(service)),
            Mount("/named", create_app(service, hosts=["ops.example"])),
        ]
    )


def django(service: AsyncJobSchedulerService) -> ASGIApp:
    """Mount it beside a site of Django's."""
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")
    page = create_app(service, auth=who)
    slash = Route("/ops/tenure", RedirectResponse("/ops/tenure/"))
    return Starlette(routes=[slash, Mount("/ops/tenure", page), Mount("/", get_asgi_application())])


def fastapi(service: AsyncJobSchedulerService) -> ASGIApp:
    """Mount it into FastAPI."""
    application = FastAPI()
    application.mount("/ops/tenure", create_app(service, auth=who))
    return application


def litestar(service: AsyncJobSchedulerService) -> ASGIApp:
    """Mount it into Litestar, which cuts the prefix off, tells it nowhere, and ends each path with a slash."""
    page = create_app(service, auth=who)

    @asgi("/ops/tenure", is_mount=True, copy_scope=True)
    async def dashboard(scope: LitestarScope, receive: LitestarReceive, send: LitestarSend) -> None:
        await page(scope, receive, send)  # type: ignore[arg-type]  # the same messages under types of its own

    return Litestar(route_handlers=[dashboard])  # type: ignore[return-value]  # likewise


FRAMEWORKS = {"starlette": starlette, "django": django, "fastapi": fastapi, "litestar": litestar}


async def main() -> None:
    """Serve until a signal ends it."""
    async with AsyncJobSchedulerService(os.environ["TENURE_DATABASE_URL"]) as service:
        application = FRAMEWORKS[sys.argv[1]](service)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
            config = uvicorn.Config(application, lifespan="off", log_level="warning", timeout_graceful_shutdown=2)
            signal.signal(signal.SIGTERM, lambda *_: None)  # the server hands on what has ended it
            await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(main())
