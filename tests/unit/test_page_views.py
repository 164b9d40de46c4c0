"""What the page for operators shows of what is known: pure (C11)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from starlette.requests import Request

from tenure import DatabaseProblem, JobDatabaseError, JobSchedulerStatus, JobSchedulerType, TenureError
from tenure.operating import LifeAttempt, RunGlance, RunLife, RunState
from tenure.records import RunRecord
from tenure.scheduling.values import JobRecord
from tenure.web.auth import is_loopback
from tenure.web.forms import Forms
from tenure.web.guard import WHO
from tenure.web.parts import Topic
from tenure.web.problems import Problems
from tenure.web.rendering import FOLDER, Renderer, Standing
from tenure.web.views.charts import history_of
from tenure.web.views.nodes import clock_words
from tenure.web.views.rules import rules_of
from tenure.web.views.runs import axis_of, may_release, may_retry, may_skip
from tenure.web.views.strips import Strips, cells
from tenure.web.views.words import in_zone, left, relative, share_left, since, slug, took, when, without_clock

TICK = datetime(2026, 7, 20, 3, tzinfo=UTC)
SECOND = timedelta(seconds=1)
GLANCE = RunGlance(
    id=UUID(int=1),
    code="sync-orders",
    run_key="2026-07-20T03:00:00.000Z",
    scheduled_at=TICK,
    state=RunState.SUCCEEDED,
    attempt=1,
    holder="node-a",
    fencing_token=1,
    created_at=TICK,
    started_at=TICK + SECOND,
    modified_at=TICK + 5 * SECOND,
    finished_at=TICK + 5 * SECOND,
    retry_at=None,
    lease_ms=60_000,
    lease_left=None,
    error=None,
)


def record(**changes: Any) -> RunRecord:
    known: dict[str, Any] = {
        "id": UUID(int=1),
        "idempotency_key": "v2:x",
        "code": "sync-orders",
        "run_key": "2026-07-20T03:00:00.000Z",
        "name": None,
        "type": JobSchedulerType.SCHEDULE,
        "status": JobSchedulerStatus.SUCCESS,
        "attempt": 2,
        "fencing_token": 2,
        "holder": "node-b",
        "lease_ms": 60_000,
        "data": None,
        "created_at": TICK,
        "started_at": TICK + 60 * SECOND,
        "modified_at": TICK + 100 * SECOND,
        "finished_at": TICK + 100 * SECOND,
        "lease_left": None,
        "scheduled_at": TICK,
    }
    return RunRecord(**{**known, **changes})


def attempt(number: int, began_s: int, ended_s: int | None, state: RunState) -> LifeAttempt:
    return LifeAttempt(
        attempt=number,
        state=state,
        holder="node-a",
        fencing_token=number,
        lease_ms=60_000,
        started_at=TICK + began_s * SECOND,
        ended_at=None if ended_s is None else TICK + ended_s * SECOND,
        error=None,
        data=None,
    )


@pytest.mark.parametrize(
    ("away", "words"),
    [(0, "now"), (0.9, "now"), (-0.9, "now"), (5, "in 5s"), (-5, "5s ago"), (3_725, "in 1h2m"), (-90_061, "1d1h ago")],
)
def test_an_instant_is_told_from_now(away: float, words: str) -> None:
    """As the script goes on with it: the two largest units."""
    assert relative(TICK + away * SECOND, TICK) == words


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (None, "—"),
        (0.25, "250ms"),
        (1, "1s"),
        (2.96, "3s"),
        (2.94, "2.9s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (75, "1m15s"),
    ],
)
def test_a_tenth_of_a_second_is_told_where_it_matters(length: float | None, words: str) -> None:
    """Runs of a few seconds are told apart."""
    assert took(None if length is None else length * SECOND) == words


def test_what_only_the_clock_changes_is_no_change() -> None:
    """A part of a page is sent again when something has happened, not because a second has passed."""
    until = TICK + 60 * SECOND

    def shown(clock: datetime) -> str:
        bar = f'<rect data-clock="" width="{share_left(until, 60_000, clock)}" height="8"/>'
        return f"{when(TICK, clock)} {since(TICK, clock)} {left(until, clock)} {bar}"

    assert shown(TICK + 5 * SECOND) != shown(TICK + 7 * SECOND)
    assert without_clock(shown(TICK + 5 * SECOND)) == without_clock(shown(TICK + 7 * SECOND))
    assert without_clock(str(when(TICK, TICK))) != without_clock(str(when(TICK + SECOND, TICK)))


@pytest.mark.parametrize(("away_s", "share"), [(60, 100), (90, 100), (30, 50), (0, 0), (-5, 0)])
def test_a_bar_is_as_wide_as_the_lease_is_long(away_s: int, share: float) -> None:
    """Never wider than whole, never less than nothing."""
    assert share_left(TICK + away_s * SECOND, 60_000, TICK) == share


def test_an_instant_in_a_zone_that_is_not_known_here_is_told_in_utc() -> None:
    """A machine without that zone shows the page all the same."""
    assert in_zone(TICK, "Europe/Berlin") == "Mon 20 Jul 2026, 05:00:00 CEST"
    assert in_zone(TICK, "Nowhere/Land") == in_zone(TICK, None) == "Mon 20 Jul 2026, 03:00:00 UTC"


def test_each_state_has_a_shape() -> None:
    """Colour never says alone what a shape does not say as well."""
    shapes = (FOLDER / "templates" / "shapes.html").read_text()
    assert [state for state in RunState if f'id="s-{slug(state)}"' not in shapes] == []


def test_a_strip_is_drawn_again_only_for_other_runs() -> None:
    """And for a run that stands otherwise."""
    strips = Strips(30)
    drawn = strips.of("a", (GLANCE,))
    assert strips.of("a", (replace(GLANCE),)) is drawn
    assert strips.of("b", (GLANCE,)) == drawn
    assert "Last 1 runs: 1 failed." in strips.of("a", (replace(GLANCE, state=RunState.FAILED),))
    assert "No runs yet." in strips.of("a", ())


def test_a_strip_escapes_what_a_node_is_called() -> None:
    """C11: a label is text."""
    drawn = Strips(30).of("a", (replace(GLANCE, holder="</title><script>"),))
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


def test_a_chart_has_both_measures_of_the_same_runs() -> None:
    """A run that was never begun is in neither, one that runs has no duration yet."""
    never = replace(GLANCE, state=RunState.SKIPPED, attempt=0, started_at=None)
    running = replace(GLANCE, state=RunState.RUNNING, finished_at=None)
    slow = replace(GLANCE, finished_at=TICK + 9 * SECOND)
    shown = history_of([never, GLANCE, slow, running])
    assert shown is not None
    assert [bar.height for bar in shown.duration.bars] == [50.0, 100.0]
    assert [bar.height for bar in shown.lag.bars] == [100.0, 100.0, 100.0]
    assert shown.duration.told == "median 6s, longest 8s"
    assert [cell.state for cell in cells([running, GLANCE])] == [RunState.SUCCEEDED, RunState.RUNNING]
    assert history_of([never]) is None


def test_a_run_that_took_no_time_at_all_has_a_chart() -> None:
    """Nothing is divided by nothing."""
    shown = history_of([replace(GLANCE, started_at=TICK, finished_at=TICK)])
    assert shown is not None
    assert shown.lag.bars[0].height > 0


def test_attempts_lie_on_an_axis_from_the_tick_to_the_end() -> None:
    """One that never said anything ends when it was last heard of; one under way ends now."""
    died, running = attempt(1, 10, 30, RunState.EXPIRED), attempt(2, 60, None, RunState.RUNNING)
    life = RunLife(
        clock=TICK + 100 * SECOND, run=record(), state=RunState.RUNNING, attempts=(died, running), actions=()
    )
    axis = axis_of(life)
    assert axis is not None
    assert (axis.begin, axis.end, axis.tick) == (TICK, TICK + 100 * SECOND, 0)
    assert [(lane.left, lane.width) for lane in axis.lanes] == [(100, 200), (600, 400)]
    assert "Attempt 1: lease expired" in axis.told
    assert axis_of(replace(life, attempts=())) is None


@pytest.mark.parametrize(
    ("state", "acts"),
    [
        (RunState.RUNNING, "release"),
        (RunState.EXPIRED, "release"),
        (RunState.SUCCEEDED, "retry"),
        (RunState.EXHAUSTED, "retry skip"),
        (RunState.FAILED, "retry skip"),
        (RunState.QUEUED, "skip"),
        (RunState.RELEASED, "skip"),
        (RunState.SKIPPED, "retry"),
    ],
)
def test_a_run_offers_what_can_be_done_to_it(state: RunState, acts: str) -> None:
    """No button leads to a refusal that could be foreseen."""
    offered = [("release", may_release(state)), ("retry", may_retry(state)), ("skip", may_skip(record(), state))]
    assert " ".join(name for name, may in offered if may) == acts
    assert not may_skip(record(run_key="manual:1"), state)


def test_rules_are_said_in_words_and_those_of_another_release_as_they_are() -> None:
    """A policy is for people, and may hold anything."""
    job = JobRecord(
        code="a",
        schedule=None,
        timezone=None,
        fingerprint=None,
        policy={"lease_ms": 60_000, "catch_up": "all", "timeout_ms": None, "jitter_ms": 0, "overlap": ["?"], "x": 1},
        known_since=TICK,
        watermark=TICK,
        paused_at=None,
        paused_by=None,
        pause_reason=None,
        registered_at=None,
        registered_by=None,
        nodes=(),
        disagreeing=(),
    )
    assert rules_of(job) == [
        ("Lease", "1m"),
        ("Time-out", "none"),
        ("Missed ticks", "are caught up, oldest first"),
        ("While another runs, a tick", "['?']"),
    ]
    assert rules_of(None) == []


def test_a_nodes_clock_is_in_step_or_off() -> None:
    """Nothing depends on it, but somebody may want to mend it."""
    offsets = [None, timedelta(milliseconds=40), timedelta(seconds=-2), timedelta(minutes=3)]
    assert [clock_words(offset) for offset in offsets] == ["not known", "in step", "2s behind", "3m ahead"]


@pytest.mark.parametrize(
    ("host", "own"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "")),
    ],
)
def test_only_loopback_is_of_this_machine_alone(host: str, own: bool) -> None:
    """C11: every other address needs a password."""
    assert is_loopback(host) is own


def test_a_page_looks_on_at_what_it_names() -> None:
    """What no page of ours would ask for is refused, before anything is asked."""
    assert Topic.of({"page": "job", "code": "a", "top": "9" * 30}) == Topic("job", code="a", top=2**63)
    for query in ({"page": "job"}, {"page": "job", "code": "a", "top": "٣"}, {"page": "run", "id": "x"}, {}):
        assert Topic.of(query) is None


@pytest.mark.parametrize(("uncertain", "words"), [(True, "is done once"), (False, "Nothing was changed")])
async def test_a_database_that_fails_is_a_page_that_says_what_was_done(uncertain: bool, words: str) -> None:
    """C11: an act whose answer was lost may be sent again, by the same form."""
    error = JobDatabaseError(DatabaseProblem.UNREACHABLE, "<it is away>", may_have_changed=uncertain)
    handlers = Problems(Renderer(Standing("tenure", writable=True, open=False))).handlers()
    answer = await handlers[TenureError](Request({"type": "http", "method": "POST", "headers": []}), error)
    assert answer.status_code == 503
    text = bytes(answer.body).decode()
    assert "&lt;it is away&gt;" in text
    assert words in text


def test_a_form_is_of_one_person_and_of_one_secret() -> None:
    """C11: what was signed for one is worth nothing in another's browser, or in another process without the secret."""

    def request(who: str | None) -> Request:
        return Request({"type": "http", "headers": [(b"cookie", b"tenure_csrf=" + b"c" * 32)], WHO: who})

    ours, theirs = Forms("ours"), Forms("theirs")
    cookie, signature = ours.token_for(request("alice"))
    assert cookie == "c" * 32
    assert Forms(b"ours").token_for(request("alice")) == (cookie, signature)
    others = [ours.token_for(request("bob")), ours.token_for(request(None)), theirs.token_for(request("alice"))]
    assert signature not in [other for _, other in others]
    assert Forms(None).token_for(request(None)) != Forms(None).token_for(request(None))
