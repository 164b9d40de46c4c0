"""What people see: sentences in a pipe, one table on a terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from rich.console import Console

from tenure import JobSchedulerStatus, JobSchedulerType, RunRecord
from tenure.demo.crew import NodeState
from tenure.demo.plan import Plan
from tenure.demo.scene import Scene, lines, recent
from tenure.demo.show import closing, live_show, opening, plain_show
from tenure.demo.tables import Event, EventKind, Tick
from tenure.demo.verdict import Evidence, judge

START = datetime(2026, 7, 20, 3, tzinfo=UTC)


def tick(number: int) -> Tick:
    due = START + timedelta(seconds=number - 1)
    return Tick(number, f"{due:%Y-%m-%dT%H:%M:%S}.000Z", due)


def run(number: int, holder: str, status: JobSchedulerStatus, attempt: int = 1) -> RunRecord:
    return RunRecord(
        id=uuid4(),
        idempotency_key="v2:x",
        code="orders-of-the-day",
        run_key=tick(number).run_key,
        name=None,
        type=JobSchedulerType.SCHEDULE,
        status=status,
        attempt=attempt,
        fencing_token=number,
        holder=holder,
        lease_ms=1800,
        data=None,
        created_at=START,
        started_at=START,
        modified_at=START,
        finished_at=None,
        lease_left=timedelta(seconds=1.25) if status is JobSchedulerStatus.RUNNING else None,
    )


def event(number: int, kind: EventKind, detail: str = "", attempt: int = 1) -> Event:
    at = START + timedelta(seconds=number, milliseconds=250)
    return Event(number, at, "node-1", kind, tick(1).run_key, attempt, 7, detail)


def scene(*news: Event) -> Scene:
    running, success = JobSchedulerStatus.RUNNING, JobSchedulerStatus.SUCCESS
    runs = [
        run(1, "node-1", success),
        run(2, "node-2", running),
        run(3, "node-3", success, 2),
        run(4, "node-1", running),
    ]
    return Scene(
        nodes={"node-1": NodeState.UP, "node-2": NodeState.KILLED, "node-3": NodeState.WOKEN},
        ticks=[tick(n) for n in range(1, 7)],
        runs={r.run_key or "": r for r in runs},
        events=[*news, Event(9, START, "node-1", EventKind.BATCH, tick(4).run_key, 1, 4, "3/5")],
        news=news,
    )


def test_lines_tell_tick_attempt_holder_lease_and_outcome() -> None:
    """Show what the issue names, one line a tick."""
    told = [(line.tick, line.due, line.attempt, line.holder, line.lease_left, line.outcome) for line in lines(scene())]
    assert told == [
        ("1", "03:00:00", "1", "node-1", "", "loaded"),
        ("2", "03:00:01", "1", "node-2", "1.2 s", "killed in mid-run"),
        ("3", "03:00:02", "2", "node-3", "", "loaded after a takeover"),
        ("4", "03:00:03", "1", "node-1", "1.2 s", "loading 3/5"),
        ("5", "03:00:04", "", "", "", ""),
        ("6", "03:00:05", "", "", "", ""),
    ]
    assert [line.tick for line in recent(lines(scene()), 3)] == ["4", "5", "6"]
    assert [line.tick for line in recent(lines(scene()), 99)] == ["1", "2", "3", "4", "5", "6"]


def test_plain_lines_tell_what_happened() -> None:
    """Write one sentence an event, with the time since the first tick; small things are left out."""
    said: list[str] = []
    plain_show(said.append)(
        scene(
            event(1, EventKind.WON, attempt=2),
            event(2, EventKind.BATCH, "1/5"),
            event(3, EventKind.STOPPED),
            event(4, EventKind.REFUSED, "complete: the lease is another node's"),
        )
    )
    assert said == [
        "  1.25 s  node-1 won tick 1, attempt 2, fencing token 7 (takeover)",
        "  3.25 s  node-1 is stopped in the middle of tick 1 (SIGSTOP)",
        "  4.25 s  node-1 is refused to complete tick 1: the lease is another node's",
    ]


def test_the_live_table_fits_the_terminal() -> None:
    """Keep the table up to date on a terminal, in the room that it has."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=14, color_system=None)
    with live_show(console) as show:
        show(scene(event(3, EventKind.KILLED)))
    assert isinstance(console.file, io.StringIO)
    picture = console.file.getvalue()
    for part in ("node-2 killed", "attempt", "lease left", "loading 3/5", "is killed in the middle of tick 1"):
        assert part in picture
    assert "03:00:00" not in picture


def test_the_first_screen_is_three_lines_and_the_last_names_where_to_go() -> None:
    """Say what will be shown, and where to go next; a bad verdict is loud."""
    plan = Plan(3, 10, 7)
    assert len(opening(plan)) == 3
    assert all(len(line) <= 120 for line in opening(plan))
    text = "\n".join(closing(judge(Evidence([tick(1)], {}, [], {}, [])), plan, 12.3))
    assert "PROBLEM         Tick 1 was lost" in text
    assert "NOT as promised" in text
    assert "tenure demo --nodes 3 --ticks 10 --seed 7" in text
    assert "README.md" in text.splitlines()[-1]
