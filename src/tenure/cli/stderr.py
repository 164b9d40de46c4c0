"""The command's stderr: passed on as it comes, its last part kept for the row."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress

from tenure.cli.errors import STDERR
from tenure.data import clean_text

TAIL_BYTES = 4096
_CHUNK_BYTES = 65_536
_REST_BYTES = 1024 * 1024
"""What a pipe can hold at most for an ordinary user, and so all that may be left in it when the command has ended."""
_REST_LIMIT_S = 5.0


class StderrTail:
    """Read one end of a pipe in a thread of its own: a reader of our stderr that stalls must not stall the lease."""

    def __init__(self) -> None:
        self._read, self.write_end = os.pipe()
        self._over_read, self._over_write = os.pipe()
        self._tail = b""
        self._cut = False
        self._thread = threading.Thread(target=self._work, name="tenure-stderr", daemon=True)

    def start(self) -> None:
        """Read from now on; the command has its own copy of the other end."""
        os.close(self.write_end)
        self._thread.start()

    def finish(self) -> str:
        """Give the last part as clean text, once what the command left in the pipe is passed on.

        Does not wait for a process that the command left behind with the pipe open, nor long for our own reader.
        """
        os.close(self._over_write)
        self._thread.join(_REST_LIMIT_S)
        return _clean(self._tail, cut=self._cut)

    def _work(self) -> None:
        watched = select.poll()
        watched.register(self._read, select.POLLIN)
        watched.register(self._over_read, select.POLLIN)
        while not any(fd == self._over_read for fd, _ in watched.poll()):
            if not self._take(os.read(self._read, _CHUNK_BYTES)):
                return
        self._take_rest()

    def _take_rest(self) -> None:
        os.set_blocking(self._read, False)
        left = _REST_BYTES
        with suppress(BlockingIOError):
            while left > 0 and (chunk := os.read(self._read, _CHUNK_BYTES)):
                self._take(chunk)
                left -= len(chunk)

    def _take(self, chunk: bytes) -> bool:
        """Keep and pass on; `False` at the end of the stream."""
        kept = self._tail + chunk
        self._cut = self._cut or len(kept) > TAIL_BYTES
        self._tail = kept[-TAIL_BYTES:]
        with suppress(OSError):
            _write_all(chunk)
        return bool(chunk)


def _write_all(chunk: bytes) -> None:
    """Write to our stderr, which others may have set not to block."""
    while chunk:
        try:
            chunk = chunk[os.write(STDERR, chunk) :]
        except BlockingIOError:
            select.select([], [STDERR], [])


def _clean(tail: bytes, *, cut: bool) -> str:
    """Make text of it that the row can hold, the end rather than the beginning if it grows too long by that."""
    if cut:
        tail = tail.lstrip(bytes(range(0x80, 0xC0)))  # what is left of a character that was cut in two
    text = clean_text(tail.decode("utf-8", "replace"), 4 * TAIL_BYTES)
    return text.encode()[-TAIL_BYTES:].decode("utf-8", "ignore")
