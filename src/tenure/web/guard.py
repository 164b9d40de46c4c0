"""What stands before every page: who may look, under which name the page is called, and what a browser may load."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenure.web.auth import Auth, admit

WHO: Final = "tenure.who"

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""No script and no style but our own files: what a page shows can start nothing, whatever it says."""


class Guard:
    """Let a request through to the pages, or refuse it; every answer bears the same headers."""

    def __init__(self, app: ASGIApp, auth: Auth | None, hosts: Collection[str] | None) -> None:
        self._app = app
        self._auth = auth
        self._hosts = None if hosts is None else frozenset(host.strip("[]").lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (beside := _beside_its_pages(scope)) is not None:
            await RedirectResponse(beside, 307)(scope, receive, _with_headers(send))
            return
        answer = await self._admitted(Request(scope, receive))
        if isinstance(answer, Response):
            await answer(scope, receive, _with_headers(send))
            return
        await self._app({**scope, "path": _of_a_page(scope), WHO: answer}, receive, _with_headers(send))

    async def _admitted(self, request: Request) -> str | Response | None:
        if self._hosts is not None and (request.url.hostname or "").strip("[]").lower() not in self._hosts:
            # a name of somebody else's that leads here: their page could read ours
            return PlainTextResponse("This page is not served under that name.", 400)
        return await admit(self._auth, request)


def _beside_its_pages(scope: Scope) -> str | None:
    """Say where the overview is for who has left out its last slash: its links are relative, and would lead astray."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if scope["path"] in ("/", "", scope.get("root_path", "")) and not raw.endswith(b"/"):
        return f"{raw.decode('ascii', 'replace').rpartition('/')[2]}/"
    return None


def _of_a_page(scope: Scope) -> str:
    """Give the path without the slash that some frameworks put behind what they have mounted."""
    path: str = scope["path"]
    bare = path.rstrip("/")
    return path if bare in ("", scope.get("root_path", "").rstrip("/")) else bare


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
