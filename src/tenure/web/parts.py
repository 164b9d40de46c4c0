"""The parts of each page that change while it is open, drawn from what the feed has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tenure.operating import JobOverview, Overview, RunGlance, TickFacts, explain
from tenure.web.feed import Seen
from tenure.web.rendering import Renderer
from tenure.web.views.jobs import element_of, job_row, mark_of_order
from tenure.web.views.runs import axis_of, glance_of, row_element

_LONGEST_CODE: Final = 256
_LONGEST_MARK: Final = 80


@dataclass(frozen=True, slots=True)
class Topic:
    """Say which page looks on, and at what."""

    page: str
    code: str = ""
    top: int = 0
    """The fencing token of the newest run that a job's page shows."""
    run: UUID | None = None
    mark: str = ""
    """What the page shows: changes when there is more to be told than its parts can."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Topic | None:
        """Read what a page asks for; `None` if no page would ask so."""
        page, code, top = query.get("page", ""), query.get("code", ""), query.get("top", "0")
        mark = query.get("mark", "")[:_LONGEST_MARK]
        if page in ("overview", "nodes"):
            return cls(page, mark=mark)
        if page == "job" and code and len(code) <= _LONGEST_CODE and top.isascii() and top.isdigit():
            return cls(page, code=code, top=min(int(top), 2**63))
        try:
            return cls(page, run=UUID(query.get("id", "")), mark=mark) if page == "run" else None
        except ValueError:
            return None


class Parts:
    """Draw the parts of pages, each under the id of its element."""

    def __init__(self, renderer: Renderer) -> None:
        self._parts = renderer.parts
        self._rows: dict[str, tuple[JobOverview, str]] = {}

    def draw(self, topic: Topic, seen: Seen) -> dict[str, str]:
        """Draw what a page shows of what is seen; nothing if nothing was ever seen."""
        if seen.overview is None:
            return {}
        if topic.page == "overview":
            return self._overview(topic, seen.overview)
        if topic.page == "nodes":
            return {"nodes": str(self._parts.nodes(seen.overview))}
        if topic.run is not None:
            return self._run(topic.run, seen.overview, seen)
        return self._job(topic, seen.overview)

    def _overview(self, topic: Topic, overview: Overview) -> dict[str, str]:
        self._rows = {of.code: self._row(of, overview) for of in overview.jobs}
        rows = {element_of(code): html for code, (_, html) in self._rows.items()}
        return {
            "summary": str(self._parts.summary(overview)),
            "leases": str(self._parts.leases(overview)),
            "jobs-news": str(self._parts.jobs_news(topic.mark != mark_of_order(overview))),
            **rows,
        }

    def _row(self, of: JobOverview, overview: Overview) -> tuple[JobOverview, str]:
        """Draw a job's row, or give the one drawn before: most of many jobs stand as they stood a second ago."""
        known = self._rows.get(of.code)
        if known is not None and known[0] == of:
            return known
        return of, str(self._parts.job_row(job_row(of), overview.clock))

    def _job(self, topic: Topic, overview: Overview) -> dict[str, str]:
        of = find_job(overview, topic.code)
        if of is None:
            return {}
        newer = sum(run.fencing_token > topic.top for run in of.recent)
        runs = {row_element(run.id): str(self._parts.run_row(run, overview.clock)) for run in of.recent}
        return {
            "job-now": str(self._parts.job_now(job_row(of), overview)),
            "news": str(self._parts.news(newer, len(of.recent))),
            **runs,
        }

    def _run(self, run: UUID, overview: Overview, seen: Seen) -> dict[str, str]:
        drawn: dict[str, str] = {}
        if (lease := next((lease for lease in overview.leases if lease.run.id == run), None)) is not None:
            drawn["lease-now"] = str(self._parts.lease_now(lease.run, overview.clock))
        if (life := seen.lives.get(run)) is not None:
            glance = glance_of(life.run)
            why = explain(facts_from(overview, glance))
            drawn["run-now"] = str(self._parts.run_now(life, glance, why, axis_of(life)))
        return drawn


def find_job(overview: Overview, code: str) -> JobOverview | None:
    """Find a job in the overview."""
    return next((job for job in overview.jobs if job.code == code), None)


def facts_from(overview: Overview, run: RunGlance) -> TickFacts:
    """Say of a run's tick what an overview knows."""
    of = find_job(overview, run.code)
    return TickFacts(
        clock=overview.clock,
        code=run.code,
        tick=run.at,
        job=of.job if of else None,
        run=run,
        nodes=overview.nodes,
    )
