"""What operators can do: what each act is called, what it means, and what became of it. Words only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tenure.operating import ActionAnswer, ActionVerdict


class Do(StrEnum):
    """Name an act as forms do."""

    RELEASE = "release"
    RETRY = "retry"
    SKIP = "skip"
    TRIGGER = "trigger"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Act:
    """Say what an act means before it is done."""

    title: str
    button: str
    means: tuple[str, ...]
    done: str
    on_run: bool = False
    needs_reason: bool = True
    grave: bool = False


ACTS: Final = {
    Do.RELEASE: Act(
        "Release this run",
        "Release the run",
        (
            "Its lease ends now, and any node that runs the job may take the run up at once, as another attempt.",
            "The node that holds it can record nothing any more. It is told at its next renewal; until then its "
            "callback may go on, beside the new one.",
        ),
        "Released. It may be taken up by any node at once.",
        on_run=True,
        grave=True,
    ),
    Do.RETRY: Act(
        "Retry this run",
        "Retry the run",
        ("The run is due again: one more attempt, at once, under the same idempotency key.",),
        "Due again. A node that runs the job takes it up.",
        on_run=True,
    ),
    Do.SKIP: Act(
        "Skip this tick",
        "Skip the tick",
        ("The tick does not run, now or later. A run that is under way, or that has ended, is left alone.",),
        "Skipped. This tick does not run.",
    ),
    Do.TRIGGER: Act(
        "Run this job now",
        "Run it now",
        ("One more run, beside its ticks: a node that runs the job takes it up within its poll.",),
        "Asked for. A node that runs the job takes it up.",
    ),
    Do.PAUSE: Act(
        "Pause this job",
        "Pause the job",
        (
            "Its ticks do not run until it is resumed, and its waiting runs are not taken up. Each tick leaves a row "
            "that says so.",
            "Runs that are under way go on.",
        ),
        "Paused. Nothing of it is taken up before it is resumed.",
    ),
    Do.RESUME: Act(
        "Resume this job",
        "Resume the job",
        ("Its next ticks run again. Ticks that came due while it was paused stay as they are.",),
        "Resumed.",
        needs_reason=False,
    ),
}

FORCED: Final = "It has succeeded. Do it again all the same: its effects happen twice, under the same idempotency key."

_REFUSALS: Final = {
    ActionVerdict.UNKNOWN: "There is no such run or job any more.",
    ActionVerdict.NOT_RUNNING: "Nobody holds it: it has ended, or waits. There is nothing to release.",
    ActionVerdict.RUNNING: "Somebody holds the run. Release it first, if that is what you mean.",
    ActionVerdict.SUCCEEDED: "It has succeeded. Only by force is it done again.",
    ActionVerdict.ENDED: "The tick is over already, run or not. There is nothing to skip.",
    ActionVerdict.DUE: "It is due already: a node that runs the job takes it up.",
    ActionVerdict.CHANGED: "It has gone on to another attempt since you looked. Look again.",
    ActionVerdict.DECIDED: "The tick was decided before, and its row was removed, or the job was not known then.",
    ActionVerdict.SUPERSEDED: "The job was registered with another schedule since you looked. Look again.",
    ActionVerdict.BUSY: "Somebody's transaction holds the row. Nothing was done; try again in a moment.",
}


def told(answer: ActionAnswer) -> str:
    """Say what became of an act that was not done."""
    return _REFUSALS.get(answer.verdict, "Nothing was done.")


def done_words(done: str | None) -> str | None:
    """Say what was just done, by the word in the page's address; `None` for any other word."""
    try:
        return ACTS[Do(done or "")].done
    except ValueError:
        return None
