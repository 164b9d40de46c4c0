"""Serve the page as users do, by `tenure dashboard`, and ask it as a browser's network stack would."""

from __future__ import annotations

import base64
import http.client
import signal
import subprocess
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from tests.cli.commands import TENURE, Tenure

PASSWORD = "correct horse"


@dataclass(frozen=True)
class Answer:
    """Hold an answer as it came; redirects are not followed."""

    status: int
    headers: http.client.HTTPMessage
    text: str


@contextmanager
def dashboard(database_url: str, *arguments: str, **environment: str) -> Generator[str]:
    """Serve the page in a process of its own, at a port that is free, and give its address."""
    with serving([*TENURE, "dashboard", "--port", "0", *arguments], database_url, **environment) as address:
        yield address


@contextmanager
def serving(command: list[str], database_url: str, **environment: str) -> Generator[str]:
    """Start what says its address in its first line, and end it as a supervisor does: it ends in order."""
    process = subprocess.Popen(
        command,
        env=Tenure(database_url, {"PYTHONFAULTHANDLER": "1", **environment}).environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = process.stdout.readline().decode()
        assert "http://" in said, f"{said!r}, and on stderr: {process.stderr.read().decode()}"
        yield "http://" + said.partition("http://")[2].split()[0].rstrip("/")
    finally:
        process.terminate()
        try:
            _, complaints = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            _, complaints = process.communicate(timeout=20)
            raise AssertionError(f"it did not end: {complaints.decode()}") from None
    assert process.returncode == 0, complaints.decode()
    assert b"Traceback" not in complaints, complaints.decode()


def ask(address: str, path: str, *, form: Mapping[str, str] | None = None, **headers: str) -> Answer:
    """Ask once, with headers whose names have `_` for `-`."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    body = None
    if form is not None:
        body = urlencode(form)
        sent = {"Content-Type": "application/x-www-form-urlencoded", **sent}
    try:
        connection.request("GET" if form is None else "POST", parts.path + path, body, sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode())
    finally:
        connection.close()


def basic(user: str, password: str) -> str:
    """Write the header of basic authentication."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@contextmanager
def listening(address: str, query: str, **headers: str) -> Generator[Iterator[str]]:
    """Open a live stream and give its events' data, one by one; it ends when the server ends it."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request(
        "GET", f"{parts.path}/live?{query}", headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    answer = connection.getresponse()
    assert answer.status == 200
    try:
        yield (line[6:].decode() for line in answer if line.startswith(b"data: "))
    finally:
        answer.close()
        connection.close()
