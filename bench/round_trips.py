"""Count round trips on the wire: a relay that sees who speaks after whom."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"


class Relay:
    """Stand between a client and a server, and count how often the server speaks after the client did."""

    def __init__(self, server_port: int) -> None:
        self.round_trips = 0
        self._server_port = server_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        opening = asyncio.start_server(self._serve, HOST, 0)
        self._listener = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def through(self, url: str) -> str:
        """Give the URL of a database by way of the relay."""
        port: int = self._listener.sockets[0].getsockname()[1]
        parts = urlsplit(url)
        return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{HOST}:{port}").geturl()

    async def _end(self) -> None:
        self._listener.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        server, questions = await asyncio.open_connection(HOST, self._server_port)
        asked = asyncio.Event()
        lanes = (self._pass_on(client, questions, asked, asks=True), self._pass_on(server, answers, asked, asks=False))
        with suppress(asyncio.CancelledError, ConnectionError):  # at the end of the relay
            await asyncio.gather(*lanes)

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: asyncio.Event, *, asks: bool
    ) -> None:
        while chunk := await source.read(65_536):
            if asks:
                asked.set()
            elif asked.is_set():
                asked.clear()
                self.round_trips += 1
            target.write(chunk)
        target.close()
