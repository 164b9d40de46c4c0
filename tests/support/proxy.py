"""A real TCP proxy in front of PostgreSQL that stops, stalls, cuts, and delays or drops the answer after the commit.

It runs on an event loop in a thread of its own, so a test may block and the faults go on. It reads as much of the wire
protocol as it needs to know where a message ends, which statement a Bind means, and which ReadyForQuery ends an
answer (PostgreSQL manual, "Message Formats"). Not understood: TLS, and COPY FROM STDIN by the extended protocol.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

_PATIENCE_S = 10
_TLS_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80877103, 80877104, 80877102
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Action = Literal["cut before", "cut after", "stall after", "hold answer"]
# When a chunk is due, and the chunk; an empty one is the end.
_Arrivals = asyncio.Queue[tuple[float, bytes]]
# Takes a chunk; returns what to hand on, and whether to cut after it.
_Handle = Callable[[bytes], tuple[bytes, bool]]


@dataclass
class _Trigger:
    pattern: bytes
    action: Action
    left: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Message:
    kind: bytes
    body: bytes
    raw: bytes


@dataclass
class _Frames:
    """Cut a stream into messages."""

    typed: bool
    # Answers to a TLS or GSS request are one byte without a length.
    bare: int = 0
    buffer: bytearray = field(default_factory=bytearray)

    def feed(self, chunk: bytes) -> Iterator[_Message]:
        self.buffer += chunk
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> _Message | None:
        head = 1 if self.typed else 0
        if self.bare and self.buffer:
            self.bare -= 1
            head, size = 1, 1
        elif len(self.buffer) >= head + 4:
            size = head + int.from_bytes(self.buffer[head : head + 4])
        else:
            return None
        if len(self.buffer) < size:
            return None
        raw = bytes(self.buffer[:size])
        del self.buffer[:size]
        return _Message(raw[:head], raw[head + 4 :], raw)


class _CutError(Exception):
    """End a link at once: the client gets a reset."""


class _Link:
    """One client, its own connection to the server, and two lanes between them."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, *, open: bool) -> None:
        self._proxy = proxy
        self._client = client
        self._server: socket.socket | None = None
        self._gate = asyncio.Event()
        self._frontend = _Frames(typed=False)
        self._backend = _Frames(typed=True)
        self._statements: dict[bytes, bytes] = {}
        self._answers_due = self._answers_seen = 0
        self._doomed: tuple[_Trigger, int] | None = None
        self._silent = False
        self._holding: _Trigger | None = None
        if open:
            self._gate.set()

    def black_hole(self) -> None:
        self._gate.clear()

    def heal(self) -> None:
        if not self._silent:
            self._gate.set()

    def reset(self) -> None:
        """Have `close` send a reset, both ways."""
        for end in filter(None, (self._client, self._server)):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    async def run(self) -> None:
        try:
            await self._gate.wait()
            self._server = server = await self._proxy.dial()
            async with asyncio.TaskGroup() as lanes:
                for source, target, handle in (
                    (self._client, server, self._from_client),
                    (server, self._client, self._from_server),
                ):
                    arrived = _Arrivals()
                    lanes.create_task(self._receive(source, arrived))
                    lanes.create_task(self._deliver(arrived, handle, target))
        except* (_CutError, OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def close(self) -> None:
        for end in filter(None, (self._client, self._server)):
            end.close()

    async def _receive(self, source: socket.socket, arrived: _Arrivals) -> None:
        """Take whatever comes, also in a black hole: the sender must see its bytes acknowledged."""
        loop = asyncio.get_running_loop()
        chunk = b"more"
        while chunk:
            try:
                chunk = await loop.sock_recv(source, 65_536)
            except OSError:
                chunk = b""
            arrived.put_nowait((loop.time() + self._proxy.latency_s, chunk))

    async def _deliver(self, arrived: _Arrivals, handle: _Handle, target: socket.socket) -> None:
        """Hand on what arrived, when it is due and the gate is open."""
        loop = asyncio.get_running_loop()
        while True:
            due, chunk = await arrived.get()
            await asyncio.sleep(due - loop.time())
            await self._gate.wait()
            if not chunk:
                return target.shutdown(socket.SHUT_WR)
            passed, cut = handle(chunk)
            await loop.sock_sendall(target, passed)
            if cut:
                raise _CutError

    def _from_client(self, chunk: bytes) -> tuple[bytes, bool]:
        passed = b""
        for message in self._frontend.feed(chunk):
            if self._doomed is None and (trigger := self._proxy.trigger_for(message.kind, self._text(message))):
                if trigger.action == "cut before":
                    self._proxy.cut += 1
                    return passed, True
                if trigger.action == "hold answer":
                    self._holding = trigger
                else:
                    self._doomed = trigger, self._answers_due + 1
            self._count(message)
            passed += message.raw
            if self._holding and message.kind in (b"Q", b"S"):
                self._hold(self._holding.seconds)
        return passed, False

    def _hold(self, seconds: float) -> None:
        """Let no answer through for so long; what the client has just sent is on its way already."""
        self._holding = None
        self._gate.clear()
        asyncio.get_running_loop().call_later(seconds, self.heal)

    def _text(self, message: _Message) -> bytes:
        """Return what a pattern is looked for in: a Bind also stands for the statement that it names."""
        if message.kind == b"P":
            self._statements[message.body.split(b"\0", 1)[0]] = message.body
        if message.kind == b"B":
            return message.body + b"\0" + self._statements.get(message.body.split(b"\0", 2)[1], b"")
        return message.body

    def _count(self, message: _Message) -> None:
        """Keep count of the ReadyForQuery messages that the server owes."""
        if self._frontend.typed:
            self._answers_due += message.kind in (b"Q", b"S")
            return
        code = int.from_bytes(message.raw[4:8])
        if code in (_TLS_REQUEST, _GSS_REQUEST):
            self._backend.bare += 1
        elif code != _CANCEL_REQUEST:
            self._frontend.typed = True
            self._answers_due += 1

    def _from_server(self, chunk: bytes) -> tuple[bytes, bool]:
        passed = b""
        for message in self._backend.feed(chunk):
            if self._doomed is None or self._answers_seen < self._doomed[1] - 1:
                passed += message.raw
            elif message.kind == b"Z":
                return passed, self._end(self._doomed[0])
            self._answers_seen += message.kind == b"Z"
        return passed, False

    def _end(self, trigger: _Trigger) -> bool:
        """Say whether the link is to be cut; if it is not, it falls silent for good."""
        if trigger.action == "cut after":
            self._proxy.cut += 1
            return True
        self._proxy.stalled += 1
        self._silent = True
        self._gate.clear()
        return False


class FaultProxy:
    """Stand between a client and PostgreSQL, and misbehave when told to.

    Every method may be called from any thread but the proxy's own, and is in force when it returns. A client must not
    ask for TLS that the server has.

    `connections` counts clients accepted, `matched` messages that set off a trigger, `cut` connections ended by a
    trigger or `reset_all`, `stalled` connections that `stall_after` silenced (the commit has happened by then).
    """

    def __init__(self, upstream_host: str, upstream_port: int) -> None:
        # Resolved here, for the loop would start a thread for it.
        found = socket.getaddrinfo(upstream_host, upstream_port, type=socket.SOCK_STREAM)
        self._family, self._address = found[0][0], found[0][4]
        self._triggers: list[_Trigger] = []
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._mishaps: list[BaseException] = []
        self._black_hole_new = False
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.latency_s = 0.0
        self.port = self.connections = self.matched = self.cut = self.stalled = 0

    @classmethod
    def in_front_of(cls, url: str) -> Self:
        """Make a proxy to the server of a `postgresql://` URL."""
        parts = urlsplit(url)
        return cls(parts.hostname or "127.0.0.1", parts.port or 5432)

    def __enter__(self) -> Self:
        # Bound but not listening: the port stays ours while new connections are refused.
        self._reserved = _bound(0)
        self.port = self._reserved.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self.refuse_new(False)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every socket, end the thread, and raise what went wrong inside, if anything did."""
        if (loop := self._loop) is None:
            return
        self._do(self._refuse_new(True))
        self._do(self._end_links())
        self._loop = None
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_PATIENCE_S)
        loop.close()
        self._reserved.close()
        if self._mishaps:
            raise self._mishaps[0]

    def url(self, from_url: str) -> str:
        """Rewrite a `postgresql://` URL, with whatever else it says, so that it leads through the proxy."""
        parts = urlsplit(from_url)
        user = parts.netloc.rpartition("@")[0]
        query = [pair for pair in parse_qsl(parts.query) if pair[0] not in ("host", "hostaddr", "port")]
        netloc = f"{user}@127.0.0.1:{self.port}" if user else f"127.0.0.1:{self.port}"
        return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query, quote_via=quote)))

    def black_hole(self, *, new: bool = True) -> None:
        """Acknowledge bytes and hand on nothing, either way, not even an end; clients to come too, unless `new=False`.

        As after a partition of the network, `heal` delivers what was held back.
        """
        self._do(self._black_hole(new))

    def heal(self) -> None:
        """End a black hole, latency and refusal. Triggers stay; a connection that was stalled stays silent."""
        self._do(self._heal())

    def latency(self, seconds: float) -> None:
        """Hold back whatever arrives from now on for so long, each way: a round trip takes twice that."""
        self.latency_s = seconds

    def reset_all(self) -> None:
        """Reset (RST) every connection, on both sides."""
        self._do(self._reset_all())

    def refuse_new(self, refuse: bool) -> None:
        """Refuse new connections as a port does where nobody listens, or take them again."""
        self._do(self._refuse_new(refuse))

    def cut_before(self, pattern: bytes, times: int = 1) -> None:
        """Cut a connection when a message holding the pattern arrives, instead of handing it on.

        Parse, Query, Bind, any message counts; a Bind holds the text of the statement that it names, too.
        """
        self._triggers.append(_Trigger(pattern, "cut before", times))

    def cut_after(self, pattern: bytes, times: int = 1) -> None:
        """Hand a message holding the pattern on, wait until the server has done it, and cut without an answer.

        A Parse does not count, for it does nothing yet; the Bind of its statement does.
        """
        self._triggers.append(_Trigger(pattern, "cut after", times))

    def stall_after(self, pattern: bytes, times: int = 1) -> None:
        """Do as `cut_after` does, but leave the client with an open connection on which nothing ever comes."""
        self._triggers.append(_Trigger(pattern, "stall after", times))

    def hold_answer(self, pattern: bytes, seconds: float, times: int = 1) -> None:
        """Hand a message holding the pattern on at once, and its answer so much later; as `cut_after` otherwise."""
        self._triggers.append(_Trigger(pattern, "hold answer", times, seconds))

    def trigger_for(self, kind: bytes, text: bytes) -> _Trigger | None:
        """Return the first trigger that a message sets off, and count it. For the links."""
        for trigger in self._triggers:
            too_early = kind == b"P" and trigger.action != "cut before"
            if trigger.left and trigger.pattern in text and not too_early:
                trigger.left -= 1
                self.matched += 1
                return trigger
        return None

    async def dial(self) -> socket.socket:
        """Return a new connection to the server. For the links."""
        server = _tune(socket.socket(self._family))
        try:
            await asyncio.get_running_loop().sock_connect(server, self._address)
        except BaseException:
            server.close()
            raise
        return server

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            work.close()
            raise RuntimeError("The proxy is not running.")
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _black_hole(self, new: bool) -> None:
        self._black_hole_new = new
        for link in self._links.values():
            link.black_hole()

    async def _heal(self) -> None:
        self._black_hole_new = False
        self.latency_s = 0.0
        for link in self._links.values():
            link.heal()
        await self._refuse_new(False)

    async def _reset_all(self) -> None:
        self.cut += len(self._links)
        for link in self._links.values():
            link.reset()
        await self._end_links()

    async def _refuse_new(self, refuse: bool) -> None:
        loop = asyncio.get_running_loop()
        if refuse and self._listener is not None:
            loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        elif not refuse and self._listener is None:
            self._listener = _bound(self.port)
            self._listener.listen(128)
            loop.add_reader(self._listener, self._welcome, self._listener)

    def _welcome(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError):
            client = _tune(listener.accept()[0])
            self.connections += 1
            link = _Link(self, client, open=not self._black_hole_new)
            task = asyncio.get_running_loop().create_task(link.run())
            self._links[task] = link
            task.add_done_callback(self._farewell)

    def _farewell(self, task: asyncio.Task[None]) -> None:
        # Not in the task: one that is cancelled before its first step runs no `finally`.
        self._links.pop(task).close()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._mishaps.append(error)

    async def _end_links(self) -> None:
        tasks = list(self._links)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tune(end: socket.socket) -> socket.socket:
    end.setblocking(False)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


def _bound(port: int) -> socket.socket:
    listener = _tune(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    return listener
