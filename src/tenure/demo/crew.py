"""Start the node processes, strike them, and see that none is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import IO, Final, Self

from tenure.demo.node import URL_VARIABLE
from tenure.demo.plan import Plan
from tenure.demo.stage import DemoError, Stage

LEAVING_LIMIT_S: Final = 3.0


class NodeState(StrEnum):
    """Say how a node is."""

    STARTING = "starting"
    UP = "up"
    KILLED = "killed"
    STOPPED = "stopped"
    WOKEN = "woken"


@dataclass(slots=True)
class Member:
    """Hold one node process and how it is."""

    name: str
    process: subprocess.Popen[bytes]
    complaints: IO[bytes]
    state: NodeState = NodeState.STARTING

    @property
    def is_working(self) -> bool:
        """Say whether the node can win runs now."""
        return self.state in (NodeState.UP, NodeState.WOKEN)

    def last_words(self) -> str:
        """Give the end of what the process wrote to standard error."""
        self.complaints.seek(0)
        lines = self.complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class Crew:
    """Own the nodes: whatever happens, they end with the `with` block, or with this process."""

    def __init__(self, stage: Stage, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan
        self.members: dict[str, Member] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(gently=kind is None)

    def start(self) -> Member:
        """Start one more node, in a process group of its own, so that the terminal's Ctrl-C is the director's."""
        number = len(self.members) + 1
        name = f"node-{number}"
        plan = {"number": number, "nodes": self._plan.nodes, "ticks": self._plan.ticks, "seed": self._plan.seed}
        options = [f"--{key}={value}" for key, value in plan.items()]
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the crew
        process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-P", "-m", "tenure.demo.node", name, self._stage.schema, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={**os.environ, URL_VARIABLE: self._stage.url},
            process_group=0,
        )
        self.members[name] = Member(name, process, complaints)
        return self.members[name]

    def working(self) -> list[Member]:
        """Give the nodes that can win runs now."""
        return [member for member in self.members.values() if member.is_working]

    def stop(self, member: Member) -> None:
        """Freeze a node."""
        os.kill(member.process.pid, signal.SIGSTOP)
        member.state = NodeState.STOPPED

    def wake(self, member: Member, state: NodeState) -> None:
        """Let a frozen node go on."""
        os.kill(member.process.pid, signal.SIGCONT)
        member.state = state

    def kill(self, member: Member) -> None:
        """Kill a node as the kernel's out-of-memory killer would."""
        member.process.kill()
        member.process.wait()
        member.state = NodeState.KILLED

    def check(self) -> None:
        """Raise `DemoError` with the last words of a node that ended by itself."""
        for member in self.members.values():
            if member.state is not NodeState.KILLED and member.process.poll() is not None:
                raise DemoError(f"{member.name} ended by itself: {member.last_words()}")

    def end(self, *, gently: bool) -> None:
        """Let the nodes leave, or kill them; a stopped one cannot leave, and is killed."""
        for member in self.members.values():
            if not (gently and member.is_working):
                member.process.kill()
            with contextlib.suppress(BrokenPipeError):
                _input_of(member).close()
        for member in self.members.values():
            _wait(member.process)
            member.complaints.close()


def _input_of(member: Member) -> IO[bytes]:
    assert member.process.stdin is not None, "it was started with a pipe"
    return member.process.stdin


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(LEAVING_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
