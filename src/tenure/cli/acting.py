"""`tenure release`, `retry` and `skip`: what operators do to one run, asked first, with who and why kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import click

from tenure.cli.asking import action, ask, who
from tenure.cli.connection import Command, Connection, connection_options
from tenure.cli.errors import ExitCode, plain, say
from tenure.cli.moments import find_tick
from tenure.cli.options import code_argument, read_text, reason_option
from tenure.cli.output import emit, lease_left, when_here
from tenure.cli.runs import find_life
from tenure.cli.ticks import not_a_tick
from tenure.operating import ActionAnswer, ActionVerdict, RunLife, operations
from tenure.scheduling import run_key

_NO_TIME: Final = timedelta(0)


def _acting(command: Command) -> Command:
    """Add what all of them take."""
    yes = click.option("--yes", is_flag=True, help="Do not ask first.")
    return reason_option(required=True)(yes(connection_options(command)))


@click.command(
    epilog="""\b
The node that holds the run can record nothing any more, and is told at its
next renewal; until then its callback may go on, beside that of the next node.
Effects that it writes with its lease (connection=, guard) cannot come through.
Example:
  tenure release 6f1c2b9e-0d5e-4b7a-9a39-0f8f2f0a4c11 --reason 'web-3 hangs'
Exit codes: 0 released; 1 nothing was done, and why is said."""
)
@click.argument("run", metavar="ID|KEY")
@_acting
def release(*, connection: Connection, run: str, reason: str, yes: bool) -> int:
    """Take a run away from the node that holds it, so that any node may take it up at once.

    Uses up none of the attempts that its job allows.
    """
    _check_somebody_answers(yes=yes)
    with connection.service() as service:
        life = find_life(service, run)
        if life is None or not _asked(f"{_standing(life)}\nRelease it?", yes=yes):
            return ExitCode.NEGATIVE
        attempt = life.run.attempt
        answer = ask(service, operations.release, life.run.id, action(reason), attempt=attempt)
    return _told(answer, _name(life), "released", "Any node that runs the job may take it up now.")


@click.command(
    epilog="""\b
Examples:
  tenure retry 6f1c2b9e-0d5e-4b7a-9a39-0f8f2f0a4c11 --reason 'the disk is mended'
  tenure retry KEY --force --reason 'its rows were deleted' --yes
Exit codes: 0 it is due again; 1 nothing was done, and why is said."""
)
@click.argument("run", metavar="ID|KEY")
@click.option("--force", is_flag=True, help="Also if it has succeeded: its effects happen again, under the same key.")
@_acting
def retry(*, connection: Connection, run: str, reason: str, force: bool, yes: bool) -> int:
    """Make a run due again that failed, used up its attempts, or never ran: one more attempt, at once."""
    _check_somebody_answers(yes=yes)
    with connection.service() as service:
        life = find_life(service, run)
        if life is None or not _asked(f"{_standing(life)}\nMake it due again?", yes=yes):
            return ExitCode.NEGATIVE
        attempt = life.run.attempt
        answer = ask(service, operations.retry, life.run.id, action(reason), force=force, attempt=attempt)
    takers = "Any node that runs the job takes it up." if life.run.scheduled_at else "The next acquire takes it up."
    return _told(answer, _name(life), "due again, asked for", takers)


@click.command(
    epilog="""\b
TICK is an instant (2026-07-20T03:00:00Z), or `last` or `next` by the job's
schedule. A run that is under way, or has ended, is left alone.
Example:
  tenure skip report next --reason 'month end is closed by hand'
Exit codes: 0 skipped; 1 nothing was done, and why is said."""
)
@code_argument()
@click.argument("tick", metavar="TICK", callback=read_text)
@_acting
def skip(*, connection: Connection, code: str, tick: str, reason: str, yes: bool) -> int:
    """Decide that a tick does not run: one to come, one that was missed, or a run of it that waits."""
    _check_somebody_answers(yes=yes)
    with connection.service() as service:
        meant = find_tick(service, code, tick, times=False)
        if meant.job is None or meant.job.fingerprint is None:
            return _nothing(f"no job {code} was ever registered. See: tenure status")
        if meant.schedule and meant.schedule.tick_at(meant.tick, _NO_TIME) != meant.tick:
            raise click.BadParameter(not_a_tick(meant.schedule, meant.tick), param_hint="TICK")
        facts = ask(service, operations.tick_facts, code, meant.tick)
        stands = f"its run is {facts.run.state.value}" if facts.run else "it has no run yet"
        if not _asked(f"{code} {when_here(meant.tick, facts.clock)}: {stands}.\nLet it not run?", yes=yes):
            return ExitCode.NEGATIVE
        fingerprint = meant.job.fingerprint
        answer = ask(service, operations.skip, code, meant.tick, action(reason), fingerprint=fingerprint)
    return _told(answer, f"{code} {run_key(meant.tick)}", "skipped", None)


def _check_somebody_answers(*, yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here whether it is meant. Give --yes.")


def _asked(question: str, *, yes: bool) -> bool:
    """Ask on the terminal, unless that was answered before."""
    if yes:
        return True
    *lines, last = question.split("\n")
    for line in lines:
        say(line)
    if click.confirm(plain(last), err=True):
        return True
    say("Nothing was done.")
    return False


def _standing(life: RunLife) -> str:
    """Say how a run stands, for who is asked."""
    run = life.run
    said = f"{_name(life)}, attempt {run.attempt}, is {life.state.value}"
    if run.holder:
        said += f"; {'its holder' if run.lease_left is not None else 'last held by'} {run.holder}"
    if run.started_at:
        said += f", since {when_here(run.started_at, life.clock)}"
    return f"{said}, {lease_left(run.lease_left)}." if run.lease_left is not None else f"{said}."


def _name(life: RunLife) -> str:
    return " ".join(filter(None, [life.run.code, life.run.run_key]))


def _told(answer: ActionAnswer, name: str, done: str, takers: str | None) -> int:
    if not answer.done:
        return _nothing(_REFUSALS[answer.verdict](answer))
    emit(plain(f"{name}: {done} by {who()}"))
    if takers and answer.job_paused:
        say("The job is paused: the run waits until it is resumed.")
    elif takers and not answer.job_has_nodes and answer.run and answer.run.scheduled_at:
        say("No living node runs the job: the run waits for one.")
    elif takers:
        say(takers)
    return ExitCode.OK


def _nothing(reason: str) -> int:
    say(f"Nothing was done: {reason}")
    return ExitCode.NEGATIVE


def _state(answer: ActionAnswer) -> str:
    return answer.run.state.value if answer.run else "gone"


def _holder(answer: ActionAnswer) -> str:
    return (answer.run.holder if answer.run else None) or "a NestJS node"


_REFUSALS: Final[dict[ActionVerdict, Callable[[ActionAnswer], str]]] = {
    ActionVerdict.UNKNOWN: lambda _: "there is no such run or job any more.",
    ActionVerdict.NOT_RUNNING: lambda answer: f"nobody holds it, it is {_state(answer)}.",
    ActionVerdict.RUNNING: lambda answer: (
        f"{_holder(answer)} holds it. Release it first, if that is what is meant: tenure release "
        f"{answer.run.id if answer.run else 'ID'} --reason ..."
    ),
    ActionVerdict.SUCCEEDED: lambda _: (
        "it has succeeded. With --force it is done again, and its effects happen twice, under the same key."
    ),
    ActionVerdict.ENDED: lambda answer: f"the tick is over, it {_over(answer)}.",
    ActionVerdict.DUE: lambda _: "it is due already: whoever runs the job takes it up.",
    ActionVerdict.CHANGED: lambda _: "it is at another attempt than a moment ago. Look again.",
    ActionVerdict.DECIDED: lambda _: (
        "the tick was decided before, and its row was removed, or the job was not known then."
    ),
    ActionVerdict.SUPERSEDED: lambda _: "the job has another schedule than a moment ago. Look again.",
    ActionVerdict.BUSY: lambda _: "somebody's transaction holds the row. Try again.",
}


def _over(answer: ActionAnswer) -> str:
    state = _state(answer)
    return state if state == "succeeded" else f"was {state}"
