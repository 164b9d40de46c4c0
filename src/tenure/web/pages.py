"""The pages that show: overview, job, run, nodes, and why a tick did or did not run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from tenure.errors import InvalidJobOptionsError
from tenure.operating import (
    WORDS,
    Health,
    HistoryFilter,
    JobOverview,
    RunState,
    TickFacts,
    explain,
    is_time_of_day,
    operations,
    tick_meant,
)
from tenure.options import JobSchedulerStatus
from tenure.web.acts import done_words
from tenure.web.parts import find_job
from tenure.web.problems import ProblemError
from tenure.web.rendering import Renderer
from tenure.web.source import Source
from tenure.web.views.charts import history_of
from tenure.web.views.jobs import job_row, mark_of_order, sorted_rows
from tenure.web.views.runs import axis_of, glance_of, mark_of, parse_run

CHARTED: Final = 120
TICKS: Final = 10
PAGE: Final = 50
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = ("since", "until")
_FILTERS: Final = ("state", *_TIMES, "holder")


class Pages:
    """Show what is there; nothing is changed."""

    def __init__(self, source: Source, renderer: Renderer) -> None:
        self._source = source
        self._renderer = renderer

    async def overview(self, request: Request) -> Response:
        """Show all jobs, what is under way, and what needs somebody."""
        query = request.query_params
        health = _member(Health, query.get("health", ""))
        seen = await self._source.ask(operations.overview)
        rows = sorted_rows(seen, query.get("q", ""), health)
        return self._renderer.page(
            request,
            "overview.html",
            seen=seen,
            rows=rows,
            wanted=query.get("q", ""),
            health=health,
            live=urlencode({"page": "overview", "mark": mark_of_order(seen)}),
        )

    async def job(self, request: Request) -> Response:
        """Show one job: its schedule, its history, its runs."""
        code = request.query_params.get("code", "")
        seen = await self._source.ask(operations.overview)
        of = find_job(seen, code)
        if of is None:
            raise ProblemError(404, f"There is no job {code!r} here.", "The overview lists those that are.")
        until = seen.clock + timedelta(days=1)
        charted = await self._source.ask(operations.timeline, _LONG_AGO, until, code=code, limit=CHARTED)
        timezone = of.job.timezone if of.job else None
        return self._renderer.page(
            request,
            "job.html",
            seen=seen,
            row=job_row(of),
            ticks=_next_ticks(of, seen.clock),
            timezone=timezone,
            history=history_of(charted.runs),
            done=_done(request),
            live=urlencode(
                {"page": "job", "code": code, "top": max((run.fencing_token for run in of.recent), default=0)}
            ),
            **await self._runs(request, code, timezone),
        )

    async def _runs(self, request: Request, code: str, timezone: str | None) -> dict[str, Any]:
        """Give a page of a job's runs, and the filters that it meets."""
        given = {name: request.query_params.get(name, "").strip() for name in _FILTERS}
        before = _number(request.query_params.get("before"))
        page = await self._source.ask(operations.history, _filter(code, given, timezone), before=before, limit=PAGE)
        filtered = {name: value for name, value in given.items() if value}
        older = urlencode({"code": code, **filtered, "before": page.before or 0})
        return {
            "runs": [glance_of(run) for run in page.runs],
            "given": given,
            "filtered": bool(filtered) or before is not None,
            "unread": [given[name] for name in _TIMES if given[name] and _instant(given[name], timezone) is None],
            "older": None if page.before is None else older,
        }

    async def run(self, request: Request) -> Response:
        """Show one run: its attempts, what it left, and why it did or did not run."""
        asked = request.query_params.get("id", "").strip()
        life = await self._source.ask(operations.life, parse_run(asked) or asked) if asked else None
        if life is None:
            raise ProblemError(
                404,
                "There is no such run.",
                "It may have been removed as old. Runs are found by id or idempotency key.",
            )
        glance = glance_of(life.run)
        facts = await self._source.ask(operations.tick_facts, glance.code, glance.at)
        # the run itself, whatever it stands for: one that was asked for by hand is found by no tick
        facts = replace(facts, run=glance, actions=life.actions)
        return self._renderer.page(
            request,
            "run.html",
            life=life,
            run=glance,
            why=explain(facts),
            axis=axis_of(life),
            done=_done(request),
            live=urlencode({"page": "run", "id": str(glance.id), "mark": mark_of(glance)}),
        )

    async def why(self, request: Request) -> Response:
        """Say in words why a tick did or did not run."""
        code, asked = request.query_params.get("code", ""), request.query_params.get("tick", "").strip()
        if not code:
            raise ProblemError(400, "Which job?", "Ask from a job's page.")
        now = await self._source.ask(operations.tick_facts, code, datetime.now(UTC))
        timezone = now.job.timezone if now.job else None
        tick, trouble = _meant(asked, now)
        why = explain(await self._source.ask(operations.tick_facts, code, tick)) if tick else None
        return self._renderer.page(
            request,
            "why.html",
            code=code,
            asked=asked,
            why=why,
            timezone=timezone,
            trouble=trouble,
            done=_done(request),
            live=None,
        )

    async def nodes(self, request: Request) -> Response:
        """Show the nodes: who lives, with which clock, and which jobs each runs."""
        seen = await self._source.ask(operations.overview)
        return self._renderer.page(request, "nodes.html", seen=seen, live="page=nodes")


def _next_ticks(of: JobOverview, clock: datetime) -> list[datetime]:
    ticks: list[datetime] = []
    tick = of.next_tick
    while of.schedule is not None and tick is not None and len(ticks) < TICKS:
        ticks.append(tick)
        tick = of.schedule.next_after(max(tick, clock))
    return ticks


def _filter(code: str, given: dict[str, str], timezone: str | None) -> HistoryFilter:
    state = _member(RunState, given["state"])
    running = state in (RunState.RUNNING, RunState.EXPIRED)
    return HistoryFilter(
        code=code,
        status=JobSchedulerStatus.RUNNING if running else None,
        state=None if running else state,
        since=_instant(given["since"], timezone),
        until=_instant(given["until"], timezone),
        holder=given["holder"] or None,
    )


def _instant(text: str, timezone: str | None) -> datetime | None:
    """Read an instant; one without a zone is of the job's."""
    try:
        found = datetime.fromisoformat(text.replace(" UTC", "Z"))
        return found if found.utcoffset() is not None else found.replace(tzinfo=ZoneInfo(timezone or "UTC"))
    except (ValueError, OSError, KeyError):  # no time, or a zone that this machine does not know
        return None


def _meant(asked: str, now: TickFacts) -> tuple[datetime | None, str]:
    """Read which tick is meant, or say why that cannot be told."""
    if not asked:
        return None, ""
    if asked in WORDS or is_time_of_day(asked):
        try:
            return tick_meant(asked, now.job, now.clock), ""
        except InvalidJobOptionsError as error:
            return None, str(error)
    tick = _instant(asked, now.job.timezone if now.job else None)
    return tick, "" if tick else "That is no time. Write it as 03:00, 2026-07-20 03:00, or with a zone: …T03:00Z."


def _member(kind: Any, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _done(request: Request) -> str | None:
    return done_words(request.query_params.get("done"))
