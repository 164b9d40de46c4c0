"""Be the parent of PostgreSQL, and stop it when nobody needs it any more.

One line of JSON is written when the server is ready, or when it cannot be had. An owned server obeys lines on
standard input (``restart fast``, ``stop immediate``) and ends when that input or the owner does. A shared one
ends when the lock that its users share can be had alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Generator, Iterator
from typing import NoReturn

from tenure.embedded.cluster import Cluster
from tenure.embedded.locks import IN_USE, SUPERVISOR, hold, is_shared
from tenure.embedded.plan import Plan, StopMode
from tenure.errors import EmbeddedPostgresError

ROUND_S = 0.2
STOPPING_LIMIT_S = 25.0
OWNED_LIMIT_S = 15.0
PAUSE_S = 0.05


def main(arguments: list[str]) -> int:
    """Run the supervisor of the plan in the first argument; the second may be an inherited start lock."""
    plan = Plan.from_text(arguments[0])
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _leave)
    try:
        if plan.owner_pid is None:
            _run_shared(plan, [int(number) for number in arguments[1:]])
        else:
            _run_owned(plan, plan.owner_pid)
    except EmbeddedPostgresError as error:
        _say({"error": str(error)})
        return 1
    except Exception:  # noqa: BLE001 - the owner must hear of it, there is no other reader
        _say({"error": f"The supervisor of PostgreSQL failed:\n{traceback.format_exc()}"})
        return 1
    return 0


def _leave(_number: int, _frame: object) -> NoReturn:
    sys.exit(0)


def _say(message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _say_ready(cluster: Cluster) -> None:
    _say({"port": cluster.port, "pid": cluster.pid})


@contextlib.contextmanager
def _running(plan: Plan) -> Generator[Cluster]:
    cluster = Cluster(plan)
    try:
        cluster.prepare()
        cluster.start()
        yield cluster
    finally:
        cluster.stop(plan.last_stop)
        if plan.temporary:
            cluster.remove()


def _run_owned(plan: Plan, owner_pid: int) -> None:
    _take_alone(plan)
    with _running(plan) as cluster:
        _say_ready(cluster)
        for command in _commands(cluster, owner_pid):
            verb, _, mode = command.partition(" ")
            cluster.stop(_mode(mode))
            if verb == "stop":
                return
            cluster.start(cluster.port)
            _say_ready(cluster)


def _take_alone(plan: Plan) -> None:
    # A server whose last user has just left needs a while to stop; one that is shared now is not worth waiting for.
    deadline_s = time.monotonic() + OWNED_LIMIT_S
    while not is_shared(plan.home / IN_USE) and time.monotonic() < deadline_s:
        in_use = hold(plan.home / IN_USE, "alone", 0)
        if in_use is not None:
            if hold(plan.home / SUPERVISOR, "alone", 0) is not None:
                return
            # Its supervisor has not seen yet that the last user left: it stops when it has this lock.
            os.close(in_use)
        time.sleep(PAUSE_S)
    raise EmbeddedPostgresError(
        f"The server in {plan.home} is in use by another process. Use share() in both, or another data folder."
    )


def _mode(text: str) -> StopMode:
    return "immediate" if text == "immediate" else "fast"


def _commands(cluster: Cluster, owner_pid: int) -> Iterator[str]:
    # A fork of the owner keeps our input open after the owner's death, so the parent is looked at too.
    while os.getppid() == owner_pid:
        readable, _, _ = select.select([0], [], [], ROUND_S)
        cluster.ended()
        if readable:
            line = os.read(0, 1024).decode().strip()
            if not line:
                return
            yield line


def _let_go(inherited: list[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    for descriptor in inherited:
        os.close(descriptor)


def _run_shared(plan: Plan, inherited: list[int]) -> None:
    if os.fork():
        os._exit(0)
    if hold(plan.home / SUPERVISOR, "alone", STOPPING_LIMIT_S) is None:
        raise EmbeddedPostgresError(f"The server in {plan.home} is run by another process, and does not answer.")
    with _running(plan) as cluster:
        _say_ready(cluster)
        _let_go(inherited)
        # The lock is kept until this process ends: whoever comes now waits until the server is stopped.
        while not cluster.ended() and hold(plan.home / IN_USE, "alone", 0) is None:
            select.select([], [], [], ROUND_S)
