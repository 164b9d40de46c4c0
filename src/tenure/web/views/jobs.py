"""A job as the overview and its own page show it: what is wrong first, and where to look."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup

from tenure.operating import Health, JobOverview, Overview, RunGlance
from tenure.operating.jobs import due_since
from tenure.operating.operations import RECENT
from tenure.web.views.strips import Strips
from tenure.web.views.words import machine

_STRIPS: Final = Strips(RECENT)
_URGENT: Final = [Health.OVERDUE, Health.EXHAUSTED, Health.ORPHANED, Health.FAILING, Health.PAUSED, Health.OK]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Say one thing that is wrong with a job, and where to look for why."""

    text: str
    since: datetime | None = None
    link: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """Show one job."""

    of: JobOverview
    element: str
    href: str
    words: str
    strip: Markup
    troubles: tuple[Trouble, ...]

    @property
    def health(self) -> Health:
        """Say what comes first."""
        return self.of.health


def job_row(of: JobOverview) -> JobRow:
    """Make what is shown of a job."""
    return JobRow(
        of=of,
        element=element_of(of.code),
        href=f"job?{urlencode({'code': of.code})}",
        words=schedule_words(of),
        strip=_STRIPS.of(of.code, of.recent),
        troubles=tuple(_troubles(of)),
    )


def element_of(code: str) -> str:
    """Name a job's element on the page, whatever its code holds."""
    return f"job-{sha256(code.encode()).hexdigest()[:12]}"


def mark_of_order(seen: Overview) -> str:
    """Give what changes when jobs come, go, or change places."""
    return sha256("\n".join(of.code for of in sorted(seen.jobs, key=_place)).encode()).hexdigest()[:16]


def schedule_words(of: JobOverview) -> str:
    """Say when a job runs."""
    if of.schedule is not None:
        return of.schedule.describe()
    written = (of.job.policy or {}).get("words") if of.job else None
    return written if isinstance(written, str) else "no schedule known here"


def sorted_rows(seen: Overview, wanted: str = "", health: Health | None = None) -> list[JobRow]:
    """Give the jobs whose code holds a text and that stand so, those in trouble first."""
    found = [of for of in seen.jobs if wanted.lower() in of.code.lower() and (health is None or of.health is health)]
    return [job_row(of) for of in sorted(found, key=_place)]


def _place(of: JobOverview) -> tuple[int, bool, str]:
    return _URGENT.index(of.health), not of.registered, of.code


def why_link(code: str, tick: datetime) -> str:
    """Lead to the answer why a tick did or did not run."""
    return f"why?{urlencode({'code': code, 'tick': machine(tick)})}"


def _troubles(of: JobOverview) -> list[Trouble]:
    found: list[Trouble] = []
    if of.overdue_since is not None:
        found.append(_overdue(of, of.overdue_since))
    if of.exhausted:
        found.append(_exhausted(of))
    if of.paused and of.job is not None:
        by = f" by {of.job.paused_by}" if of.job.paused_by else ""
        reason = f": {of.job.pause_reason}" if of.job.pause_reason else ""
        found.append(Trouble(text=f"Paused{by}{reason}", since=of.job.paused_at))
    if of.orphaned:
        found.append(Trouble(text="No living node runs it", link="nodes", label="Nodes"))
    if of.failures_in_a_row and not of.exhausted:
        found.append(_failing(of))
    if of.job is not None and of.job.disagreeing:
        labels = ", ".join(of.job.disagreeing)
        found.append(Trouble(text=f"Started with another schedule: {labels}", link="nodes", label="Nodes"))
    if of.trouble is not None:
        found.append(Trouble(text=f"Its schedule cannot be read here: {of.trouble}"))
    return found


def _overdue(of: JobOverview, since: datetime) -> Trouble:
    waiting = next((run for run in of.unfinished if due_since(run) == since), None)
    if waiting is not None:
        return Trouble(text=f"Overdue: {waiting.state.value}", since=since, link=_run_link(waiting), label="Why?")
    return Trouble(text="Overdue: nobody took the tick", since=since, link=why_link(of.code, since), label="Why?")


def _exhausted(of: JobOverview) -> Trouble:
    runs = "One run has" if of.exhausted == 1 else f"{of.exhausted} runs have"
    query = urlencode({"code": of.code, "state": "exhausted"})
    return Trouble(text=f"{runs} used up the attempts", link=f"job?{query}#runs", label="Show")


def _failing(of: JobOverview) -> Trouble:
    times = of.failures_in_a_row
    failed = next((run for run in of.recent if run.state.is_failure), None)
    if failed is None:
        return Trouble(text=f"{times} failures in a row")
    how = f"{failed.state.value}: {failed.error}" if failed.error else failed.state.value
    text = f"The last run: {how}" if times == 1 else f"{times} failures in a row, the last one: {how}"
    return Trouble(text=text, link=_run_link(failed), label="Look")


def _run_link(run: RunGlance) -> str:
    return f"run?id={run.id}"
