"""What went wrong, as a page that says what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tenure.errors import InvalidJobOptionsError, JobDatabaseError, TenureError
from tenure.web.forms import FormError
from tenure.web.rendering import Renderer


class ProblemError(Exception):
    """Say what cannot be shown, and what to do instead."""

    def __init__(self, status: int, text: str, advice: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.advice = advice


_READING: Final = "Nothing was changed. `tenure schema check` may say more."
_ACTING: Final = "Whether it was done is not known. Go back and send the same form again: it is done once."


class Problems:
    """Show errors as pages; nothing that an error holds is a secret (C11)."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def handlers(self) -> dict[Any, Callable[[Request, Any], Awaitable[Response]]]:
        """Give who answers which error."""
        return {
            ProblemError: self._problem,
            FormError: self._form,
            InvalidJobOptionsError: self._invalid,
            TenureError: self._database,
            HTTPException: self._http,
        }

    async def _problem(self, request: Request, error: ProblemError) -> Response:
        return self._page(request, error.status, error.text, error.advice)

    async def _form(self, request: Request, error: FormError) -> Response:
        return self._page(request, error.status, str(error))

    async def _invalid(self, request: Request, error: InvalidJobOptionsError) -> Response:
        return self._page(request, 400, str(error))

    async def _database(self, request: Request, error: TenureError) -> Response:
        uncertain = isinstance(error, JobDatabaseError) and error.may_have_changed
        return self._page(request, 503, str(error), _ACTING if uncertain else _READING)

    async def _http(self, request: Request, error: HTTPException) -> Response:
        text = "There is no such page." if error.status_code == 404 else error.detail
        return self._page(request, error.status_code, text)

    def _page(self, request: Request, status: int, text: str, advice: str = "") -> Response:
        return self._renderer.page(request, "problem.html", status=status, text=text, advice=advice, live=None)
