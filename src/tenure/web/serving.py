"""Serve the page by itself."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette

_LAST_ANSWERS_S: Final = 5


def serve(app: Starlette, *, host: str, port: int, ready: Callable[[str], object]) -> None:
    """Serve what `create_app` made until SIGTERM or SIGINT; `ready` is told the address once it answers.

    Port 0 is any that is free. Raises `OSError` if the address cannot be had, `KeyboardInterrupt` after SIGINT.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), port), family=family) as listening:
        name, taken = listening.getsockname()[:2]
        address = f"http://[{name}]:{taken}/" if family == socket.AF_INET6 else f"http://{name}:{taken}/"
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_LAST_ANSWERS_S,
        )
        before = signal.signal(signal.SIGTERM, _noted)  # the server hands on what has ended it
        try:
            _Server(config, app, lambda: ready(address)).run(sockets=[listening])
        finally:
            signal.signal(signal.SIGTERM, before)


class _Server(uvicorn.Server):
    """Say when it answers, and end the live streams before it waits for the last answers."""

    def __init__(self, config: uvicorn.Config, app: Starlette, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer from now on."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was asked, and nothing more."""
        self._app.state.feed.close()
        await super().shutdown(sockets)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Let the caller go on to its end."""
