"""The public surface: what can be imported, and that it is the same for both services."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import subprocess
import sys
from collections.abc import Callable

import pytest

import tenure
import tenure.web
from tenure import AsyncJobSchedulerService, JobSchedulerService, scheduling
from tenure.integrations import fastapi
from tenure.outbox import AsyncOutbox, Outbox
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Job, JobRun, Scheduler

NAMES = {
    "AsyncJobExecutionLease",
    "AsyncJobSchedulerService",
    "DEFAULT_HEARTBEAT_MS",
    "DEFAULT_LEASE_MS",
    "DatabaseProblem",
    "EmbeddedPostgresError",
    "InvalidJobDataError",
    "InvalidJobIdentityOptionsError",
    "InvalidJobLeaseOptionsError",
    "InvalidJobOptionsError",
    "JobAcquireOptions",
    "JobAcquireResult",
    "JobAcquired",
    "JobAttempt",
    "JobDatabaseError",
    "JobExecutionLease",
    "JobLease",
    "JobNotAcquired",
    "RunRecord",
    "JobSchedulerService",
    "JobSchedulerStatus",
    "JobSchedulerType",
    "JobServiceStateError",
    "LostJobLeaseError",
    "LostReason",
    "NotAcquiredReason",
    "OutcomeNotRecordedError",
    "PreviousAttempt",
    "RunExclusiveResult",
    "TenureError",
    "WaitTimeoutError",
    "external_job_id",
}

SCHEDULING_NAMES = {
    "EARLY_TOLERANCE",
    "AsyncJobRun",
    "AsyncScheduler",
    "Cron",
    "Every",
    "Job",
    "JobRun",
    "Outcome",
    "Retention",
    "Retry",
    "Schedule",
    "Scheduler",
    "run_key",
    "schedule_from",
}


def public_methods(cls: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") or name == "__init__"
    }


def test_the_public_names_are_these() -> None:
    """C1: a name that appears or vanishes is a change of the product, and of this list."""
    assert set(tenure.__all__) == NAMES
    assert all(hasattr(tenure, name) for name in NAMES)


def test_the_schedulers_public_names_are_these() -> None:
    """C10: likewise, and each is documented, with all its methods."""
    assert set(scheduling.__all__) == SCHEDULING_NAMES
    for name in SCHEDULING_NAMES - {"EARLY_TOLERANCE"}:
        named = getattr(scheduling, name)
        assert inspect.getdoc(named), name
        for method, _ in inspect.getmembers(named, inspect.isfunction) if isinstance(named, type) else ():
            assert method.startswith("_") or inspect.getdoc(getattr(named, method)), f"{name}.{method}"


def test_the_pages_public_names_are_these() -> None:
    """C11: likewise."""
    assert set(tenure.web.__all__) == {"Auth", "BasicAuth", "create_app", "serve"}
    assert all(inspect.getdoc(getattr(tenure.web, name)) for name in ("BasicAuth", "create_app", "serve"))
    assert "secret" not in repr(tenure.web.BasicAuth("ops", "secret"))


def test_the_fastapi_integrations_public_names_are_these() -> None:
    """C1: the reference's names, with `for_root`."""
    names = {name for name, found in vars(fastapi).items() if getattr(found, "__module__", "") == fastapi.__name__}
    assert names == {"JobSchedulerModule", "JobSchedulerModuleOptions"}
    assert all(inspect.getdoc(getattr(fastapi, name)) for name in names)
    service = inspect.signature(tenure.AsyncJobSchedulerService).parameters
    assert set(service) < set(inspect.signature(fastapi.JobSchedulerModuleOptions).parameters)


def test_the_defaults_are_the_references() -> None:
    """C1: 15 minutes and 1 minute."""
    assert (tenure.DEFAULT_LEASE_MS, tenure.DEFAULT_HEARTBEAT_MS) == (900_000, 60_000)


def test_enums_are_string_enums() -> None:
    """C1: `JobSchedulerStatus` and `JobSchedulerType` are `enum.StrEnum`, with the reference's values."""
    assert issubclass(tenure.JobSchedulerStatus, enum.StrEnum)
    assert issubclass(tenure.JobSchedulerType, enum.StrEnum)
    assert [status.value for status in tenure.JobSchedulerStatus] == ["RUNNING", "SUCCESS", "FAIL"]
    assert [kind.value for kind in tenure.JobSchedulerType] == ["INITIAL", "SCHEDULE"]


def test_both_services_have_the_same_methods_parameters_and_defaults() -> None:
    """C1.2: only `async` and the type of a callback tell them apart."""
    blocking, on_loop = public_methods(JobSchedulerService), public_methods(AsyncJobSchedulerService)
    assert blocking.keys() == on_loop.keys()
    for name, signature in blocking.items():
        mine = [(p.name, p.kind, p.default) for p in signature.parameters.values()]
        theirs = [(p.name, p.kind, p.default) for p in on_loop[name].parameters.values()]
        assert mine == theirs, name


def test_both_outboxes_have_the_same_methods_parameters_and_defaults() -> None:
    """C1.2, C7.4: as the services."""
    blocking, on_loop = public_methods(Outbox), public_methods(AsyncOutbox)
    assert blocking.keys() == on_loop.keys()
    for name, signature in blocking.items():
        mine = [(p.name, p.kind, p.default) for p in signature.parameters.values()]
        theirs = [(p.name, p.kind, p.default) for p in on_loop[name].parameters.values()]
        assert mine == theirs, name
        assert inspect.getdoc(getattr(Outbox, name)), name
        assert inspect.getdoc(getattr(AsyncOutbox, name)), name
        if name != "__init__":
            assert inspect.iscoroutinefunction(getattr(AsyncOutbox, name)), name


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("blocking", "on_loop"), [(Scheduler, AsyncScheduler), (JobRun, AsyncJobRun)])
def test_both_schedulers_and_their_runs_have_the_same_methods_parameters_and_defaults(
    blocking: type, on_loop: type
) -> None:
    """C1.2, C10: as the services; none takes what its signature does not name."""
    names = public_methods(blocking).keys()
    assert names == public_methods(on_loop).keys()
    for name in names:
        mine = parameters(getattr(blocking, name))
        assert mine == parameters(getattr(on_loop, name)), name
        assert not any(kind is inspect.Parameter.VAR_KEYWORD for _, kind, _ in mine), name


def test_what_stops_and_runs_is_awaited_on_the_async_scheduler_alone() -> None:
    """C1.2: the rest touches no database."""
    awaited = {
        name for name in public_methods(AsyncScheduler) if inspect.iscoroutinefunction(getattr(AsyncScheduler, name))
    }
    assert awaited == {"run", "stop"}
    assert not any(inspect.iscoroutinefunction(getattr(Scheduler, name)) for name in public_methods(Scheduler))


def test_the_decorator_takes_every_rule_of_a_job_with_its_default() -> None:
    """C10.5: `@scheduler.job(...)` and `Job(...)` are two ways to say the same."""
    rules = {field.name: field.default for field in dataclasses.fields(Job)}
    taken = {name: default for name, _, default in parameters(Scheduler.job)[1:]}
    assert taken.keys() == rules.keys() - {"callback"}
    for name, default in taken.items():
        expected = rules[name]
        assert (default is inspect.Parameter.empty) == (expected is dataclasses.MISSING), name
        assert default is inspect.Parameter.empty or default == expected, name


def test_every_async_method_is_a_coroutine_function() -> None:
    """C1.2: what touches the database is awaited on the async service, and not on the other."""
    for name in public_methods(AsyncJobSchedulerService).keys() - {"__init__"}:
        assert inspect.iscoroutinefunction(getattr(AsyncJobSchedulerService, name)), name
        assert not inspect.iscoroutinefunction(getattr(JobSchedulerService, name)), name


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        ("InvalidJobOptionsError", ("TenureError", "ValueError")),
        ("InvalidJobIdentityOptionsError", ("InvalidJobOptionsError", "ValueError")),
        ("InvalidJobLeaseOptionsError", ("InvalidJobOptionsError", "ValueError")),
        ("InvalidJobDataError", ("TenureError", "ValueError")),
        ("LostJobLeaseError", ("TenureError",)),
        ("OutcomeNotRecordedError", ("TenureError",)),
        ("WaitTimeoutError", ("TenureError",)),
        ("JobDatabaseError", ("TenureError",)),
        ("JobServiceStateError", ("TenureError", "RuntimeError")),
    ],
)
def test_errors_form_the_promised_tree(error: str, bases: tuple[str, ...]) -> None:
    """C11: `except TenureError` catches all of ours; a bad option is also a ValueError."""
    cls = getattr(tenure, error)
    assert {base.__name__ for base in cls.__mro__} >= set(bases)


def test_every_public_name_is_documented() -> None:
    """A docstring says what a caller may rely on."""
    for name in NAMES - {"DEFAULT_LEASE_MS", "DEFAULT_HEARTBEAT_MS", "JobAcquireResult"}:
        assert inspect.getdoc(getattr(tenure, name)), name
    for cls in (JobSchedulerService, AsyncJobSchedulerService):
        for name in public_methods(cls):
            assert inspect.getdoc(getattr(cls, name)), f"{cls.__name__}.{name}"


def test_importing_tenure_imports_no_framework() -> None:
    """The core needs psycopg 3 alone, and no extra is imported by `import tenure`; an event loop when one runs."""
    unwanted = ("click", "rich", "platformdirs", "sqlalchemy", "asyncio", "pathlib")
    script = f"import sys, tenure; print([m for m in {unwanted} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
