"""`GET /healthz` for those who watch over processes: 200 while a check holds, else 503."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6

PATH = "/healthz"


class PortError(Exception):
    """Say that a port cannot be listened on, and why."""


@contextmanager
def serving_health(host: str, port: int, healthy: Callable[[], bool]) -> Generator[str]:
    """Serve in threads of its own, so that a blocked loop is seen; give the address. Raises `PortError`."""
    try:
        server = _server_class(host)((host, port), _handler_for(healthy))
    except OSError as error:
        raise PortError(f"{host} port {port} cannot be listened on: {error.strerror or error}.") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="tenure-health", daemon=True)
    thread.start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_address[1]}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _server_class(host: str) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """Let a client that went away be."""

    return Server


def _handler_for(check: Callable[[], bool]) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        def healthy(self) -> bool:
            return check()

    return Handler


class _Handler(BaseHTTPRequestHandler):
    timeout = 5
    server_version = "tenure"
    sys_version = ""

    def healthy(self) -> bool:
        raise NotImplementedError

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"There is {PATH} only.")
        elif self.healthy():
            self._answer(HTTPStatus.OK, "healthy")
        else:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "not healthy")

    do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""
