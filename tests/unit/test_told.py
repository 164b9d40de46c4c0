"""Waiting in the main thread: signals are heard however they arrive (C10.8)."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future

import pytest

from tenure.scheduling.told import join, result_of
from tests.support.waiting import eventually


@pytest.fixture
def heard() -> Generator[threading.Event]:
    """Be set by SIGUSR1."""
    event = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: event.set())
    yield event
    signal.signal(signal.SIGUSR1, before)


def signalled_from_beside(heard: threading.Event) -> bool:
    """Let the signal arrive in this thread: the main one's lock does not wake up, as for one that comes just before."""
    eventually(main_thread_waits, 20)
    time.sleep(0.05)  # from that line of Python to the lock itself
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    return heard.wait(20)


def main_thread_waits() -> bool:
    """Say whether the main thread is about to wait in a lock, or does."""
    (main,) = [frame for ident, frame in sys._current_frames().items() if ident == threading.main_thread().ident]
    return main.f_code.co_filename == threading.__file__ and main.f_code.co_name in {
        "wait",
        "join",
        "_wait_for_tstate_lock",
    }


def test_who_waits_for_a_thread_hears_signals(heard: threading.Event) -> None:
    """A plain `Thread.join` would hear it at the thread's end only."""
    said: list[bool] = []
    thread = threading.Thread(target=lambda: said.append(signalled_from_beside(heard)))
    thread.start()
    join(thread)
    assert said == [True]


def test_who_waits_for_a_future_hears_signals(heard: threading.Event) -> None:
    """A plain `Future.result` would hear it once there is one only."""
    future: Future[bool] = Future()
    thread = threading.Thread(target=lambda: future.set_result(signalled_from_beside(heard)))
    thread.start()
    assert result_of(future) is True
    thread.join()
