"""The pages that act: first what it means and why, then once, and who did it stands with the run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID, uuid4

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tenure.operating import Action, ActionAnswer, RunGlance, RunState, TickFacts, operations
from tenure.web.acts import ACTS, FORCED, Act, Do, told
from tenure.web.forms import Forms
from tenure.web.guard import WHO
from tenure.web.problems import ProblemError
from tenure.web.rendering import Renderer
from tenure.web.source import Source
from tenure.web.views.runs import glance_of, parse_run
from tenure.web.views.words import machine

_OF_JOB: Final = {Do.TRIGGER: operations.trigger, Do.PAUSE: operations.pause, Do.RESUME: operations.resume}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Say to what an act is done, as it stands."""

    act: Act
    do: Do
    code: str
    facts: TickFacts
    run: RunGlance | None = None
    tick: datetime | None = None
    attempt: int | None = None
    fingerprint: str | None = None

    @property
    def back(self) -> str:
        """Lead back to where the act was asked for."""
        if self.act.on_run and self.run is not None:
            return f"run?{urlencode({'id': str(self.run.id)})}"
        if self.tick is not None:
            return f"why?{urlencode({'code': self.code, 'tick': machine(self.tick)})}"
        return f"job?{urlencode({'code': self.code})}"

    @property
    def needs_force(self) -> bool:
        """Say whether a run that has succeeded would be done again."""
        return self.do is Do.RETRY and self.run is not None and self.run.state is RunState.SUCCEEDED


class Acting:
    """Confirm and do, where writing is switched on."""

    def __init__(self, source: Source, renderer: Renderer, forms: Forms, *, writable: bool) -> None:
        self._source = source
        self._renderer = renderer
        self._forms = forms
        self._writable = writable

    async def confirm(self, request: Request) -> Response:
        """Say what an act means, and ask for the reason."""
        self._check_writable()
        subject = await self._subject(dict(request.query_params))
        return self._form(request, subject, {"action_token": str(uuid4())})

    async def act(self, request: Request) -> Response:
        """Do what was confirmed; a form that is sent twice is done once."""
        self._check_writable()
        form = await self._forms.read(request)
        subject = await self._subject(form)
        if trouble := self._trouble(request, subject, form):
            return self._form(request, subject, form, status=400, trouble=trouble)
        answer = await self._do(subject, self._action(request, form), force="force" in form)
        if not answer.done:
            return self._form(
                request, subject, {**form, "action_token": str(uuid4())}, status=409, trouble=told(answer)
            )
        separator = "&" if "?" in subject.back else "?"
        return RedirectResponse(f"{subject.back}{separator}done={subject.do.value}", 303)

    def _check_writable(self) -> None:
        if not self._writable:
            raise ProblemError(
                403,
                "This page only shows.",
                "Acting is off. Start it with `tenure dashboard --writable`, or `create_app(..., writable=True)`.",
            )

    async def _subject(self, asked: dict[str, str]) -> Subject:
        try:
            do = Do(asked.get("do", ""))
        except ValueError:
            raise ProblemError(400, "There is no such act.", "Go back and choose one.") from None
        if ACTS[do].on_run:
            return await self._of_run(do, asked)
        code, tick = asked.get("code", ""), None
        if do is Do.SKIP:
            try:
                tick = datetime.fromisoformat(asked.get("tick", ""))
            except ValueError:
                raise ProblemError(400, "That is no tick.", "Go back and choose one.") from None
        facts = await self._source.ask(operations.tick_facts, code, tick or datetime.now(UTC))
        if facts.job is None:
            raise ProblemError(
                404, f"There is no job {code!r} that a scheduler has registered.", "Only those can be told to."
            )
        fingerprint = asked.get("fingerprint") or facts.job.fingerprint
        return Subject(
            act=ACTS[do],
            do=do,
            code=code,
            facts=facts,
            run=facts.run if tick else None,
            tick=tick,
            fingerprint=fingerprint,
        )

    async def _of_run(self, do: Do, asked: dict[str, str]) -> Subject:
        run_id = parse_run(asked.get("id", ""))
        life = await self._source.ask(operations.life, run_id) if run_id else None
        if life is None:
            raise ProblemError(404, "There is no such run.", "It may have been removed as old.")
        run = glance_of(life.run)
        facts = await self._source.ask(operations.tick_facts, run.code, run.at)
        given = asked.get("attempt", "")
        attempt = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else run.attempt
        return Subject(act=ACTS[do], do=do, code=run.code, facts=facts, run=run, attempt=attempt)

    def _form(
        self, request: Request, subject: Subject, form: dict[str, str], *, status: int = 200, trouble: str = ""
    ) -> Response:
        cookie, signature = self._forms.token_for(request)
        hidden: dict[str, Any] = {
            "do": subject.do.value,
            "id": subject.run.id if subject.act.on_run and subject.run else "",
            "code": subject.code,
            "tick": machine(subject.tick) if subject.tick else "",
            "attempt": "" if subject.attempt is None else subject.attempt,
            "fingerprint": subject.fingerprint or "",
            "action_token": form.get("action_token", ""),
            "csrf": signature,
        }
        response = self._renderer.page(
            request,
            "act.html",
            status=status,
            subject=subject,
            hidden=hidden,
            form=form,
            forced=FORCED,
            trouble=trouble,
            live=None,
        )
        self._forms.remember(request, response, cookie)
        return response

    def _trouble(self, request: Request, subject: Subject, form: dict[str, str]) -> str:
        if not form.get("reason", "").strip() and subject.act.needs_reason:
            return "Say why: whoever looks at this later wants to know."
        if request.scope.get(WHO) is None and not form.get("by", "").strip():
            return "Say who you are: this page has no way to know."
        if parse_run(form.get("action_token", "")) is None:
            return "This form is too old. Nothing was done; send it again."
        if subject.needs_force and "force" not in form:
            return "It has succeeded. Say that you want it done again."
        return ""

    def _action(self, request: Request, form: dict[str, str]) -> Action:
        by = request.scope.get(WHO) or form.get("by", "").strip()
        return Action(by=by, reason=form.get("reason", "").strip() or None, token=UUID(form["action_token"]))

    async def _do(self, subject: Subject, action: Action, *, force: bool) -> ActionAnswer:
        ask = self._source.ask
        if subject.do in _OF_JOB:
            return await ask(_OF_JOB[subject.do], subject.code, action)
        if subject.do is Do.SKIP:
            return await ask(operations.skip, subject.code, subject.tick, action, fingerprint=subject.fingerprint)
        assert subject.run is not None
        if subject.do is Do.RELEASE:
            return await ask(operations.release, subject.run.id, action, attempt=subject.attempt)
        return await ask(operations.retry, subject.run.id, action, attempt=subject.attempt, force=force)
