"""The command's stderr: passed through as it comes, the last 4 KiB kept, clean (C6.2)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tenure.cli.stderr import TAIL_BYTES, StderrTail
from tests.cli.commands import Tenure, finished, named, only_row, shell
from tests.support.waiting import eventually

RUN = ("run", "x", "--run-key", "k")


def test_stderr_passes_through_while_the_command_runs(tenure: Tenure, tmp_path: Path) -> None:
    """Live, not at the end."""
    go = tmp_path / "go"
    script = f"echo begun >&2; while [ ! -e {named(go)} ]; do sleep 0.02; done"
    with tenure.start(*RUN, *shell(script)) as process:
        assert process.stderr
        assert process.stderr.readline() == b"begun\n"
        assert process.poll() is None
        go.touch()
        assert finished(process).code == 0


def test_the_end_of_a_long_stderr_is_kept(tenure: Tenure, database_url: str) -> None:
    """All of it passes, 4 KiB of it stay."""
    done = tenure(*RUN, *shell("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 1"))
    assert len(done.err) == 3_000_008
    kept = only_row(database_url)["data"]["stderr"]
    assert len(kept) == TAIL_BYTES
    assert kept.endswith("xxx" + "the end\n")


def test_what_no_row_can_hold_is_cleaned(tenure: Tenure, database_url: str) -> None:
    """NUL, escape sequences, bytes that are no UTF-8: the run is settled, the terminal got the bytes as they were."""
    done = tenure(*RUN, *shell(r"printf 'a\000b\033[31mc\377\303' >&2; exit 1"))
    assert done.err == "a\0b\x1b[31mc\udcff\udcc3"
    assert only_row(database_url)["data"] == {"exitCode": 1, "stderr": "a b [31mc\ufffd\ufffd"}


def test_a_process_left_behind_with_the_pipe_open_does_not_hang_us(tenure: Tenure, database_url: str) -> None:
    """The command has ended; what it wrote is kept, whoever else could still write."""
    with tenure.start(*RUN, *shell("sleep 60 > /dev/null & echo $!; echo bye >&2")) as process:
        done = finished(process)
    assert (done.code, done.err) == (0, "bye\n")
    assert only_row(database_url)["data"]["stderr"] == "bye\n"
    os.kill(int(done.out), signal.SIGKILL)


def test_a_process_left_behind_that_writes_on_does_not_hang_us(tenure: Tenure) -> None:
    """Not even one that never stops."""
    with tenure.start(*RUN, *shell("yes >&2 & echo $!")) as process:
        done = finished(process)
    assert done.code == 0
    pid = int(done.out)
    eventually(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_a_closed_stderr_of_ours_is_no_error(tenure: Tenure, database_url: str) -> None:
    """What cannot be passed on is still kept."""
    read, write = os.pipe()
    os.close(read)
    with tenure.start(*RUN, *shell("echo lost >&2; exit 4"), stderr=write) as process:
        os.close(write)
        assert process.wait(30) == 4
    assert only_row(database_url)["data"]["stderr"] == "lost\n"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (b"", ""),
        ("ä".encode() * TAIL_BYTES, "ä" * (TAIL_BYTES // 2)),
        (b"x" + "ä".encode() * TAIL_BYTES + b"y", "ä" * (TAIL_BYTES // 2 - 1) + "y"),
        (b"\xff" * TAIL_BYTES, "\ufffd" * (TAIL_BYTES // 3)),
        (b"\0" * 5 + b"end", "     end"),
    ],
)
def test_the_tail_is_text_of_at_most_4_kib(
    written: bytes, kept: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """No character is cut in two, and the end wins over the beginning."""
    tail = StderrTail()
    write = os.dup(tail.write_end)
    tail.start()
    os.write(write, written)
    os.close(write)
    assert tail.finish() == kept
    assert capfdbinary.readouterr().err == written
