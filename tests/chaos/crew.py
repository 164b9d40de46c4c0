"""The node processes, each behind a proxy of its own, and what can be done to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

from tests.chaos.node import URL_VARIABLE
from tests.chaos.plan import Plan, is_async
from tests.support.proxy import FaultProxy


@dataclass(slots=True)
class Member:
    """Hold one place in the crew: a process, its proxy, and how often it had to be started."""

    number: int
    proxy: FaultProxy
    starts: int = 0
    stopped: bool = False
    process: subprocess.Popen[bytes] | None = None
    complaints: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    @property
    def application(self) -> str:
        """Give the name that its sessions bear."""
        return f"chaos-{self.number}"

    def last_words(self) -> str:
        """Give the end of what it wrote to standard error."""
        self.complaints.seek(0)
        return self.complaints.read().decode(errors="replace")[-2_000:].strip() or "it said nothing"


class Crew:
    """Own the nodes: they end with the `with` block, or with this process."""

    def __init__(self, url: str, plan: Plan) -> None:
        self._url = url
        self._plan = plan
        self._began_at = time.time()
        self._stack = ExitStack()
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        for number in range(self._plan.nodes):
            proxy = self._stack.enter_context(FaultProxy.in_front_of(self._url))
            member = Member(number, proxy)
            self._stack.callback(member.complaints.close)
            self._stack.callback(self.kill, member)
            self.members.append(member)
            self.start(member)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, member: Member) -> None:
        """Start a node afresh in its place, under a new name."""
        member.starts += 1
        name = f"node-{member.number}.{member.starts}"
        options = ["--on-loop"] if is_async(member.number) else []
        url = f"{member.proxy.url(self._url)}?application_name={member.application}"
        member.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.node", name, self._plan.to_text(), str(self._began_at), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=member.complaints,
            env={**os.environ, URL_VARIABLE: url},
            process_group=0,
        )

    def kill(self, member: Member) -> None:
        """Kill a node as the kernel's out-of-memory killer would."""
        process = _process(member)
        process.kill()
        process.wait()
        member.stopped = False

    def stop(self, member: Member) -> None:
        """Freeze a node."""
        _process(member).send_signal(signal.SIGSTOP)
        member.stopped = True

    def wake(self, member: Member) -> None:
        """Let a frozen node go on."""
        _process(member).send_signal(signal.SIGCONT)
        member.stopped = False

    def fallen(self) -> list[str]:
        """Give the last words of the nodes that ended by an error of their own."""
        return [
            f"node {member.number} ended by itself with {code}: {member.last_words()}"
            for member in self.members
            if (code := _process(member).poll()) not in (None, 0, -signal.SIGKILL)
        ]


def _process(member: Member) -> subprocess.Popen[bytes]:
    assert member.process is not None, "it was started"
    return member.process
