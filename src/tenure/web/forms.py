"""Forms that only our own pages can send: read within bounds, and checked against forgery."""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from tenure.web.guard import WHO

COOKIE: Final = "tenure_csrf"
FIELD: Final = "csrf"
_LIMIT_BYTES: Final = 65_536
_MOST_FIELDS: Final = 50


class FormError(Exception):
    """Say why a form is not taken; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Forms:
    """Sign forms and check them: the cookie and the field must both be ours, and belong together and to who asks.

    Processes that serve the same page behind one address need the same `secret`.
    """

    def __init__(self, secret: str | bytes | None) -> None:
        self._secret = secret.encode() if isinstance(secret, str) else secret or secrets.token_bytes(32)

    def token_for(self, request: Request) -> tuple[str, str]:
        """Give the cookie and the field for a form on a page."""
        known = request.cookies.get(COOKIE, "")
        cookie = known if 20 <= len(known) <= 100 else secrets.token_urlsafe(24)
        return cookie, self._signed(request, cookie)

    def remember(self, request: Request, response: Response, cookie: str) -> None:
        """Leave the cookie with the browser; no script reads it, and no other site's request brings it."""
        path = f"{request.scope.get('root_path', '')}/"
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, cookie, path=path, httponly=True, samesite="strict", secure=secure)

    async def read(self, request: Request) -> dict[str, str]:
        """Read a form that one of our pages has sent. Raises `FormError` for any other."""
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise FormError(403, "This form was sent from another site, and was not taken.")
        form = await _fields(request)
        given, cookie = form.pop(FIELD, ""), request.cookies.get(COOKIE, "")
        if not cookie or not hmac.compare_digest(given.encode(), self._signed(request, cookie).encode()):
            raise FormError(
                403, "This form is too old, or not from this page. Nothing was done. Go back and reload it."
            )
        return form

    def _signed(self, request: Request, cookie: str) -> str:
        # of one person only: a pair that somebody was given for himself is worth nothing in another's browser
        signed = f"{request.scope.get(WHO) or ''}\n{cookie}"
        return hmac.new(self._secret, signed.encode(), sha256).hexdigest()


async def _fields(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise FormError(415, "Only a plain form is taken here.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LIMIT_BYTES:
            raise FormError(413, f"The form is larger than {_LIMIT_BYTES:,} bytes. Shorten the reason.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"))
    except ValueError as error:
        raise FormError(400, "The form cannot be read: it is not UTF-8, or has too many fields.") from error
