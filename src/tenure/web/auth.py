"""Who may look: basic authentication, or a function of the application's own."""

from __future__ import annotations

import base64
import binascii
import hmac
import inspect
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tenure.errors import InvalidJobOptionsError

Answer: TypeAlias = str | Response | None
Auth: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]
"""What lets people in: a `BasicAuth`, or a function that is given each request.

It gives who asks, which stands beside what they do; `None` for somebody who is refused; or a response, a redirect to a
login say. It may be a coroutine function.
"""

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
"""What this machine is called by itself."""

_REALM: Final = 'Basic realm="tenure", charset="UTF-8"'
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")


class BasicAuth:
    """Let in who knows one user name and its password, over HTTP's basic authentication.

    Put TLS before it where the way to the browser is not the machine's own: the password travels with each request.
    """

    def __init__(self, user: str, password: str) -> None:
        if not user or ":" in user or not password:
            raise InvalidJobOptionsError("Basic authentication needs a user without a colon, and a password.")
        self.user = user
        self._expected = f"{user}:{password}".encode()

    def __repr__(self) -> str:
        return f"BasicAuth(user={self.user!r})"

    def __call__(self, request: Request) -> Answer:
        """Give the user, or ask the browser for the password."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic" and hmac.compare_digest(_decoded(given), self._expected):
            return self.user
        return PlainTextResponse("Who are you?", 401, {"WWW-Authenticate": _REALM})


def _decoded(given: str) -> bytes:
    try:
        return base64.b64decode(given.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


async def admit(auth: Auth | None, request: Request) -> str | Response | None:
    """Say who asks: a name, `None` for anybody at this machine, or the response that refuses."""
    if auth is None:
        return None if _is_direct_from_here(request) else _refusal(_NOT_FROM_AFAR)
    answer = auth(request)
    if inspect.isawaitable(answer):
        answer = await answer
    return _refusal("You may not look at this page.") if answer is None else answer


_NOT_FROM_AFAR: Final = (
    "This page has no authentication, so it answers only who asks at this machine itself, without a proxy between. "
    "Give create_app(..., auth=BasicAuth(user, password)), or a function of yours that says who asks."
)


def _refusal(why: str) -> Response:
    return PlainTextResponse(why, 403)


def _is_direct_from_here(request: Request) -> bool:
    if any(name in request.headers for name in _FORWARDED):
        return False
    # a socket in the file system has no address: whoever may open it is of this machine
    return request.client is None or is_loopback(request.client.host)


def is_loopback(host: str) -> bool:
    """Say whether an address, or `localhost`, is of this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
