"""Server-sent events: the parts of a page that have changed, as HTML, and the database's clock."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tenure.web.feed import Feed, Seen
from tenure.web.parts import Parts, Topic
from tenure.web.views.words import machine, without_clock

LIFE_S: Final = 30.0
"""A stream ends after that and the browser comes back by itself: a server that stops need not wait for longer."""

_MOST_BOARDS: Final = 64
_COME_BACK_MS: Final = 400


@dataclass(slots=True)
class Board:
    """Keep the parts of one kind of page as they were last drawn, and since which beat each looks so."""

    draw: Callable[[Seen], Mapping[str, str]]
    number: int = 0
    parts: dict[str, tuple[str, str, int]] = field(default_factory=dict[str, "tuple[str, str, int]"])

    def draw_once(self, seen: Seen) -> None:
        """Draw what is seen, unless another stream has done so."""
        if seen.number <= self.number:
            return
        for element, html in self.draw(seen).items():
            known = self.parts.get(element)
            if known is not None and known[1] is html:
                continue
            look = without_clock(html)
            if known is None or known[0] != look:
                self.parts[element] = (look, html, seen.number)
        self.number = seen.number

    def since(self, number: int) -> dict[str, str]:
        """Give the parts that have changed after a beat."""
        return {element: html for element, (_, html, changed) in self.parts.items() if changed > number}


class Streams:
    """Answer the pages that look on."""

    def __init__(self, feed: Feed, parts: Parts) -> None:
        self._feed = feed
        self._parts = parts
        self._boards: OrderedDict[Topic, Board] = OrderedDict()
        self._birth = token_hex(4)

    async def live(self, request: Request) -> Response:
        """Stream what changes on the page that asks."""
        topic = Topic.of(request.query_params)
        if topic is None:
            return Response("There is no such page.", 404, media_type="text/plain")
        events = self._events(topic, self._after(request.headers.get("last-event-id", "")))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _events(self, topic: Topic, after: int) -> AsyncGenerator[str]:
        yield f"retry: {_COME_BACK_MS}\n\n"
        board, until_s = self._board(topic), time.monotonic() + LIFE_S
        beats = self._feed.beats(topic.run, topic.mark)
        try:
            async for seen in beats:
                board.draw_once(seen)
                yield self._event(seen, board.since(after))
                after = seen.number
                if time.monotonic() > until_s:
                    return
        finally:
            await beats.aclose()

    def _event(self, seen: Seen, parts: Mapping[str, str]) -> str:
        clock = None if seen.overview is None or seen.trouble else machine(seen.overview.clock)
        told = json.dumps({"clock": clock, "trouble": seen.trouble, "parts": parts})
        return f"id: {self._birth}-{seen.number}\nevent: beat\ndata: {told}\n\n"

    def _after(self, last_event: str) -> int:
        birth, _, number = last_event.partition("-")
        return int(number) if birth == self._birth and number.isascii() and number.isdigit() else 0

    def _board(self, topic: Topic) -> Board:
        board = self._boards.setdefault(topic, Board(lambda seen: self._parts.draw(topic, seen)))
        self._boards.move_to_end(topic)
        while len(self._boards) > _MOST_BOARDS:
            self._boards.popitem(last=False)
        return board
