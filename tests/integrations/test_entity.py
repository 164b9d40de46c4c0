"""The SQLAlchemy entity, and Alembic beside tenure's migrations or instead of them (C1, C9.1, C9.2)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import alembic
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import (
    BLANK_SCHEMA,
    Connection,
    Engine,
    ForeignKey,
    MetaData,
    NullPool,
    create_engine,
    create_mock_engine,
    make_url,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column, relationship
from sqlalchemy.sql.schema import SchemaConst

from tenure import (
    InvalidJobOptionsError,
    JobAcquired,
    JobAcquireOptions,
    JobSchedulerService,
    JobSchedulerStatus,
    JobSchedulerType,
    NotAcquiredReason,
)
from tenure.adoption import adopt
from tenure.entity import JobScheduler, JobSchedulerMixin, include_name, migration_statements, unmapped_statements
from tenure.schema import migrations
from tenure.shapes import RUNS
from tenure.statements import SIDE_TABLES, Table, quote
from tests.scenarios.test_schema import catalog
from tests.support.rows import execute, row_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "alembic.md"
BLOCKS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
BESIDE = ("migrations", *SIDE_TABLES)
OPTIONS = JobAcquireOptions(code="entity", run_key="tick", name="for people", lease_ms=60_000)
ODD_NAMES = [
    (None, "job-scheduler"),
    ("jobs", "runs"),
    ("s" * 63, "t" * 40),
    ('a "quoted" schema', 'table:with ::colons and "quotes"'),
    ("100%", "%(name)s"),
    ("dollar $1 ${table}", "semi; colon -- comment '; DROP"),
    ("new\nline;\nCREATE x", "back\\slash"),
]


class Application(DeclarativeBase):
    """An application's own base, whose naming convention is not tenure's."""

    metadata = MetaData(
        naming_convention={
            "pk": "primary_%(table_name)s",
            "uq": "%(table_name)s_%(column_0_name)s_unique",
            "ix": "index_%(column_0_label)s",
            "fk": "%(table_name)s_%(column_0_name)s_refers",
        }
    )


class Run(JobSchedulerMixin, Application):
    """The table of runs among an application's tables."""


class Report(Application):
    """A table of the application's that refers to runs."""

    __tablename__ = "reports"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(unique=True, index=True)
    run_id: Mapped[UUID] = mapped_column(ForeignKey(Run.id))
    run: Mapped[Run] = relationship()


def entity(
    schema: str | SchemaConst | None = None, table: str = "job-scheduler", metadata: MetaData | None = None
) -> type[JobSchedulerMixin]:
    """Make the class on a base of its own, under other names."""
    base = type("Base", (DeclarativeBase,), {"metadata": metadata or MetaData()})
    named = {"__tablename__": table, "__table_schema__": schema, "__module__": __name__}
    return type("Named", (JobSchedulerMixin, base), named)


def sqlalchemy_url(url: str, driver: str = "psycopg") -> str:
    return make_url(url).set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)


@contextmanager
def engine_on(url: str, schema: str | None = None) -> Iterator[Engine]:
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool)
    if schema is not None:
        execute(url, f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
    yield engine
    engine.dispose()


def won(service: JobSchedulerService, options: JobAcquireOptions = OPTIONS) -> JobAcquired:
    result = service.acquire(options)
    assert isinstance(result, JobAcquired)
    return result


# Looking at rows


def test_rows_of_the_service_are_read_with_their_types(database_url: str, service: JobSchedulerService) -> None:
    """C1: UUIDs, aware UTC instants, enums, and the data as Python objects."""
    held = won(service)
    seeded = won(service, JobAcquireOptions(code="seed", type="INITIAL"))
    assert service.complete(seeded, {"rows": [1, 2.5, "ü"], "done": True})
    with engine_on(database_url) as engine, Session(engine) as session:
        run = session.scalars(select(JobScheduler).where(JobScheduler.status == JobSchedulerStatus.RUNNING)).one()
        assert (run.id, run.owner_token, run.fencing_token) == (held.id, held.owner_token, held.fencing_token)
        assert (run.code, run.run_key, run.name, run.lock_key) == ("entity", "tick", "for people", OPTIONS.lock_key)
        assert (run.type, run.attempt, run.lease_ms, run.owner) == (JobSchedulerType.SCHEDULE, 1, 60_000, "node-a")
        assert (run.data, run.finished_at) == (None, None)
        done = session.get_one(JobScheduler, seeded.id)
        assert (done.type, done.status) == (JobSchedulerType.INITIAL, JobSchedulerStatus.SUCCESS)
        assert (done.run_key, done.name) == (None, None)
        assert done.data == {"rows": [1, 2.5, "ü"], "done": True}
        for each in (run, done):
            assert isinstance(each.id, UUID)
            assert isinstance(each.status, JobSchedulerStatus)
            for instant in (each.created_at, each.modified_at, each.started_at):
                assert instant is not None
                assert instant.utcoffset() == timedelta(0)
                assert abs(datetime.now(UTC) - instant) < timedelta(minutes=1)


def test_a_representation_shows_no_owner_token(database_url: str, service: JobSchedulerService) -> None:
    """C11: neither of a row that was read, nor of one that was expired or detached."""
    held = won(service)
    with engine_on(database_url) as engine, Session(engine) as session:
        run = session.scalars(select(JobScheduler)).one()
        assert "code='entity', run_key='tick'" in repr(run)
        assert str(held.owner_token) not in repr(run)
        session.expire(run)
        assert repr(run) == "JobScheduler()"
    assert str(held.owner_token) not in repr(run)


def test_a_row_added_through_the_entity_is_one_that_a_service_takes_over(
    database_url: str, service: JobSchedulerService
) -> None:
    """C9.2: the server's defaults are known to the model, so only the reference's columns need be given."""
    other = JobAcquireOptions(code="entity", run_key="added")
    with engine_on(database_url) as engine, Session(engine) as session:
        run = JobScheduler(
            lock_key=other.lock_key,
            code=other.code,
            run_key=other.run_key,
            type=other.type,
            status=JobSchedulerStatus.FAIL,
            owner_token=UUID(int=1),
        )
        session.add(run)
        session.commit()
        assert (run.attempt, run.data) == (1, None)
        again = won(service, other)
        assert (again.id, again.attempt) == (run.id, 2)
        assert again.fencing_token > run.fencing_token


def test_an_applications_tables_may_refer_to_runs(empty_database_url: str) -> None:
    """C1: relationships across the application's metadata."""
    with engine_on(empty_database_url) as engine, JobSchedulerService(empty_database_url) as service:
        Application.metadata.create_all(engine)
        held = won(service)
        with Session(engine) as session:
            session.add(Report(title="July", run_id=held.id))
            session.commit()
            assert session.scalars(select(Report).join(Report.run)).one().run.code == "entity"


# Making the table


def test_create_all_makes_what_the_migrations_make(database_url: str, empty_database_url: str) -> None:
    """C9.1: columns in their order, defaults, constraints, indexes, types, trigger, function and storage."""
    execute(database_url, f"DROP TABLE {Table().migrations_quoted}")
    with engine_on(empty_database_url) as engine:
        JobScheduler.metadata.create_all(engine)
    made = catalog(empty_database_url, Table())
    assert all(made.values())
    assert made == catalog(database_url, Table())


@pytest.mark.parametrize(("schema", "table"), ODD_NAMES[1:])
def test_create_all_makes_the_same_under_any_name(
    database_url: str, empty_database_url: str, schema: str, table: str
) -> None:
    """C9.2: quoted as ours are."""
    with JobSchedulerService(database_url, schema=schema, table=table) as service:
        service.migrate()
    execute(database_url, f"DROP TABLE {Table(schema, table).migrations_quoted}")
    with engine_on(empty_database_url, schema) as engine:
        entity(schema, table).metadata.create_all(engine)
    assert catalog(empty_database_url, Table(schema, table)) == catalog(database_url, Table(schema, table))


@pytest.mark.parametrize("convention", [Application.metadata.naming_convention, {"uq": "x_%(constraint_name)s"}])
def test_names_ignore_the_convention_of_the_metadata(
    database_url: str, empty_database_url: str, convention: Mapping[str, str]
) -> None:
    """C9.1: an application may name its own as it likes."""
    execute(database_url, f"DROP TABLE {Table().migrations_quoted}")
    with engine_on(empty_database_url) as engine:
        entity(metadata=MetaData(naming_convention=convention)).metadata.create_all(engine)
    assert catalog(empty_database_url, Table()) == catalog(database_url, Table())


@pytest.mark.parametrize(("schema", "table"), ODD_NAMES)
def test_drop_all_leaves_nothing_behind(empty_database_url: str, schema: str | None, table: str) -> None:
    """The function and the types go, too, so that it can all be made again."""
    metadata = entity(schema, table).metadata
    with engine_on(empty_database_url, schema) as engine:
        for _ in range(2):
            metadata.create_all(engine)
            metadata.drop_all(engine)
    left = catalog(empty_database_url, Table(schema or "public", table))
    assert {part for part, found in left.items() if found} == set()


def test_a_service_and_a_nestjs_node_work_on_what_create_all_made(empty_database_url: str) -> None:
    """C4.3: the trigger counts the attempt and moves the fencing token when a stranger takes over."""
    with engine_on(empty_database_url) as engine, JobSchedulerService(empty_database_url) as service:
        JobScheduler.metadata.create_all(engine)
        first = won(service)
        execute(empty_database_url, f'UPDATE {Table().quoted} SET "ownerToken" = gen_random_uuid()')
        row = row_of(empty_database_url, OPTIONS.lock_key)
        assert (row["attempt"], row["leaseMs"], row["owner"]) == (2, None, None)
        assert row["fencingToken"] > first.fencing_token
        assert not service.heartbeat(first)


def test_the_schema_follows_the_metadata_unless_it_is_named() -> None:
    """C9.2: as any table does."""
    assert entity(None, metadata=MetaData(schema="app")).__table__.schema == "app"
    assert entity("jobs", metadata=MetaData(schema="app")).__table__.schema == "jobs"
    assert entity(BLANK_SCHEMA, metadata=MetaData(schema="app")).__table__.schema is None


def test_a_schema_that_is_translated_is_followed(empty_database_url: str) -> None:
    """The types, the function and the trigger go where `schema_translate_map` sends the table."""
    execute(empty_database_url, "CREATE SCHEMA tenant")
    with engine_on(empty_database_url) as engine:
        translated = engine.execution_options(schema_translate_map={None: "tenant"})
        JobScheduler.metadata.create_all(translated)
        made = catalog(empty_database_url, Table("tenant"))
        assert all(made.values())
        assert catalog(empty_database_url, Table())["relations"] == []
        JobScheduler.metadata.drop_all(translated)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_async_drivers_make_the_same(empty_database_url: str, driver: str) -> None:
    """A driver that prepares everything takes one statement at a time, of every migration."""
    from sqlalchemy.ext.asyncio import create_async_engine

    made, migrated = Table("made"), Table("migrated")
    engine = create_async_engine(sqlalchemy_url(empty_database_url, driver), poolclass=NullPool)
    execute(empty_database_url, "CREATE SCHEMA made; CREATE SCHEMA migrated")
    async with engine.begin() as connection:
        await connection.run_sync(entity(made.schema).metadata.create_all)
        for name in migrations():
            for statement in migration_statements(name, schema=migrated.schema):
                await connection.execute(statement)
    await engine.dispose()
    assert catalog(empty_database_url, made) == catalog(empty_database_url, migrated)
    assert all(catalog(empty_database_url, made).values())


def test_the_ddl_can_be_written_out_without_a_database() -> None:
    """SQLAlchemy's mock engine gets every statement."""
    statements: list[str] = []
    postgresql = make_url("postgresql+psycopg://").get_dialect()()

    def write(statement: Any, *_: Any, **__: Any) -> None:
        statements.append(str(statement.compile(dialect=postgresql)))

    engine = create_mock_engine("postgresql+psycopg://", write)
    JobScheduler.metadata.create_all(engine, checkfirst=False)
    kinds = [re.match(r"\s*(\w+ \w+)", statement)[1] for statement in statements]  # type: ignore[index]
    assert kinds == [
        *["CREATE TYPE"] * 2,
        "CREATE TABLE",
        *["CREATE INDEX"] * 5,
        "ALTER TABLE",
        "CREATE FUNCTION",
        "CREATE TRIGGER",
        *["CREATE TABLE"] * 2,
        "CREATE FUNCTION",
        "CREATE TRIGGER",
        "CREATE FUNCTION",
        "GRANT EXECUTE",
        "CREATE TABLE",
        *["CREATE INDEX"] * 3,
        *["CREATE TABLE"] * 2,
        "CREATE FUNCTION",
        "GRANT EXECUTE",
        "CREATE TABLE",
        *["CREATE INDEX"] * 2,
        "CREATE FUNCTION",
        "GRANT EXECUTE",
    ]


def test_the_columns_are_those_of_the_schema() -> None:
    """C9.2: the same names in the same order; attributes are their snake-case."""
    columns = JobScheduler.__table__.columns
    assert [column.name for column in columns] == list(RUNS.columns)
    snake = [re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), name) for name in RUNS.columns]
    assert set(JobScheduler.__mapper__.attrs.keys()) == set(snake)


@pytest.mark.parametrize(("schema", "table"), [("s" * 64, "runs"), ("", "runs"), (None, "t" * 41), ("jobs", "")])
def test_names_that_postgresql_would_cut_are_refused(schema: str | None, table: str) -> None:
    """C9.2: when the class is made."""
    with pytest.raises(InvalidJobOptionsError, match="must be 1 to"):
        entity(schema, table)


def test_a_base_that_makes_dataclasses_shares_its_metadata() -> None:
    """The mixin is no dataclass; the page says what to do."""

    class Dataclasses(MappedAsDataclass, DeclarativeBase):
        pass

    class Runs(DeclarativeBase):
        metadata = Dataclasses.metadata

    class Job(JobSchedulerMixin, Runs):
        pass

    class Note(Dataclasses):
        __tablename__ = "notes"

        id: Mapped[int] = mapped_column(primary_key=True)
        run_id: Mapped[UUID] = mapped_column(ForeignKey(Job.id))

    assert set(Dataclasses.metadata.tables) == {"job-scheduler", "notes"}
    assert Note(id=1, run_id=UUID(int=1)).run_id == UUID(int=1)


@pytest.mark.parametrize("missing", ["sqlalchemy", "sqlalchemy.orm"])
def test_without_sqlalchemy_the_extra_is_named(missing: str) -> None:
    """One error with the mend; the rest of tenure does not need it."""
    code = f"import sys; sys.modules[{missing!r}] = None; import tenure; print('here'); import tenure.entity"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "here\n"
    assert "ImportError: tenure.entity needs SQLAlchemy 2. Install it: pip install 'tenure[sqlalchemy]'" in done.stderr


# Alembic's autogenerate


Hook = Callable[[str | None, str, Mapping[Any, str | None]], bool]


def differences(connection: Connection, metadata: MetaData, hook: Hook | None, **options: Any) -> list[Any]:
    settings = {"compare_type": True, "compare_server_default": True, "include_name": hook, **options}
    return list(compare_metadata(MigrationContext.configure(connection, opts=settings), metadata))


def only(*schemas: str | None) -> Hook:
    return lambda name, type_, _: type_ != "schema" or name in schemas


@pytest.mark.parametrize("include_schemas", [False, True])
def test_nothing_differs_for_the_ready_made_entity(database_url: str, include_schemas: bool) -> None:
    """C1: after `tenure schema apply`; without the hook, tenure's side tables are all that Alembic would drop."""
    hook = include_name(JobScheduler)
    with engine_on(database_url) as engine, engine.connect() as connection:
        metadata = JobScheduler.metadata
        assert differences(connection, metadata, hook, include_schemas=include_schemas) == []
        dropped = differences(connection, metadata, None, include_schemas=include_schemas)
        assert {(verb, table.name) for verb, table in dropped if verb != "remove_index"} == {
            ("remove_table", f"job-scheduler_{name}") for name in BESIDE
        }


def test_nothing_differs_beside_an_applications_own_tables(database_url: str) -> None:
    """C1: only what is the application's is to be made, and nothing once it is."""
    hook = include_name(Run)
    with engine_on(database_url) as engine, engine.connect() as connection:
        proposed = differences(connection, Application.metadata, hook)
        assert {
            (verb, getattr(thing.table if verb == "add_index" else thing, "name", None)) for verb, thing in proposed
        } == {
            ("add_table", "reports"),
            ("add_index", "reports"),
        }
        connection.rollback()
        Application.metadata.create_all(engine)
        assert differences(connection, Application.metadata, hook) == []


@pytest.mark.parametrize(("schema", "table"), [names for names in ODD_NAMES if "%" not in str(names)])
def test_nothing_differs_under_other_names(empty_database_url: str, schema: str | None, table: str) -> None:
    """C9.2: with tenure's own table beside it. (SQLAlchemy 2.1 does not recognise an enum type with % in its name.)"""
    with JobSchedulerService(empty_database_url, schema=schema or "public", table=table) as service:
        service.migrate()
    named = entity(schema, table)
    ours, here = include_name(named), only(schema)

    def both(name: str | None, type_: str, parents: Mapping[Any, str | None]) -> bool:
        return ours(name, type_, parents) and here(name, type_, parents)

    with engine_on(empty_database_url) as engine, engine.connect() as connection:
        assert differences(connection, named.metadata, both, include_schemas=True) == []
        found = differences(connection, named.metadata, here, include_schemas=True)
        assert [verb for verb, _ in found if verb != "remove_index"] == ["remove_table"] * len(BESIDE)


def test_a_metadata_with_a_schema_of_its_own_differs_in_nothing(empty_database_url: str) -> None:
    """C9.2: the entity, its enum types and its neighbours stand in the application's schema."""
    with JobSchedulerService(empty_database_url, schema="app") as service:
        service.migrate()
    named = entity(None, metadata=MetaData(schema="app"))
    with engine_on(empty_database_url) as engine, engine.connect() as connection:
        assert differences(connection, named.metadata, include_name(named), include_schemas=True) == []


@pytest.mark.parametrize("name", BESIDE)
def test_the_hook_hides_only_tenures_own_tables(name: str) -> None:
    """A table of that name in another schema, or another table here, is the application's business."""
    hook = include_name(JobScheduler, entity("jobs", "runs"))
    assert not hook(f"job-scheduler_{name}", "table", {"schema_name": None})
    assert not hook(f"runs_{name}", "table", {"schema_name": "jobs"})
    assert hook(f"job-scheduler_{name}", "table", {"schema_name": "jobs"})
    assert hook(f"runs_{name}", "table", {"schema_name": None})
    assert hook(f"job-scheduler_{name}", "index", {"schema_name": None})
    assert hook("job-scheduler", "table", {"schema_name": None})
    assert hook(None, "schema", {})


TABLE = Table().quoted
CHANGES = {
    f'ALTER TABLE {TABLE} DROP COLUMN "owner"': "add_column",
    f'ALTER TABLE {TABLE} ADD COLUMN "more" text': "remove_column",
    f'ALTER TABLE {TABLE} ALTER "owner" TYPE varchar(255)': "modify_type",
    f'ALTER TABLE {TABLE} ALTER "attempt" SET DEFAULT 2': "modify_default",
    f'ALTER TABLE {TABLE} ALTER "fencingToken" DROP IDENTITY': "modify_default",
    f'ALTER TABLE {TABLE} ALTER "startedAt" SET NOT NULL': "modify_nullable",
    f'ALTER TABLE {TABLE} DROP CONSTRAINT "job-scheduler_owner_token_key"': "add_constraint",
    'DROP INDEX "job-scheduler_unfinished_idx"': "add_index",
}


@pytest.mark.parametrize(("change", "verb"), CHANGES.items(), ids=CHANGES.values())
def test_autogenerate_sees_what_does_differ(database_url: str, change: str, verb: str) -> None:
    """So that an empty difference means something."""
    execute(database_url, change)
    with engine_on(database_url) as engine, engine.connect() as connection:
        found = differences(connection, JobScheduler.metadata, include_name(JobScheduler))
        assert verb in str(found)


# The page


class Project:
    """A directory with the page's files, and the alembic command in it."""

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        versions = root / "migrations" / "versions"
        versions.mkdir(parents=True)
        template = Path(alembic.__file__).parent / "templates" / "generic" / "script.py.mako"
        (root / "migrations" / "script.py.mako").write_text(template.read_text())
        address = sqlalchemy_url(url).replace("%", "%%")
        (root / "alembic.ini").write_text(
            "[alembic]\nscript_location = migrations\nprepend_sys_path = .\npath_separator = os\n"
            f"sqlalchemy.url = {address}\n"
        )
        self.write("models.py")
        self.write("migrations/env.py")

    def write(self, name: str) -> None:
        (self.root / name).write_text(BLOCKS[name])

    def alembic(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "alembic", *words],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def autogenerated(self, name: str) -> Path:
        self.alembic("revision", "--autogenerate", "-m", name)
        (made,) = (self.root / "migrations" / "versions").glob(f"*_{name}.py")
        return made


def test_every_block_of_the_page_is_run_here() -> None:
    """A block that is added needs a test below."""
    text = PAGE.read_text()
    assert len(BLOCKS) == len(re.findall(r"^```python", text, re.MULTILINE))
    assert set(BLOCKS) == {
        "query.py",
        "models.py",
        "elsewhere.py",
        "migrations/env.py",
        "hook.py",
        "migrations/versions/0001_runs.py",
        "migrations/versions/0002_attempts.py",
        "migrations/versions/0003_outbox.py",
        "migrations/versions/0004_scheduling.py",
        "migrations/versions/0005_operating.py",
        "completed.py",
    }
    assert re.findall(r"^```console\n(.*?)```", text, re.MULTILINE | re.DOTALL) == [
        "tenure schema apply\nalembic upgrade head\n"
    ]


def block(name: str, **given: Any) -> dict[str, Any]:
    space = {"__name__": name.partition(".")[0], **given}
    exec(compile(BLOCKS[name], str(PAGE), "exec"), space)
    return space


def test_the_pages_query_runs(
    database_url: str, service: JobSchedulerService, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/how-to/alembic.md, `query.py`."""
    service.fail(won(service), {"why": "bad weather"})
    with engine_on(database_url) as engine:
        block("query.py", engine=engine)
    assert re.match(r"entity tick 1 .* \{'why': 'bad weather'\}\n$", capsys.readouterr().out)


def test_the_pages_other_names_are_those_of_a_service(empty_database_url: str) -> None:
    """docs/how-to/alembic.md, `elsewhere.py`."""
    elsewhere = block("elsewhere.py")
    with JobSchedulerService(empty_database_url, schema="jobs", table="runs") as service:
        service.migrate()
        held = won(service)
    with engine_on(empty_database_url) as engine, Session(engine) as session:
        assert session.get(elsewhere["JobScheduler"], held.id) is not None


def test_the_pages_hook_goes_with_another(database_url: str) -> None:
    """docs/how-to/alembic.md, `hook.py`."""
    execute(database_url, "CREATE TABLE legacy_orders (id int)")
    with engine_on(database_url) as engine, engine.connect() as connection:
        assert differences(connection, JobScheduler.metadata, block("hook.py")["both"]) == []


def test_alembic_beside_our_migrations(empty_database_url: str, tmp_path: Path) -> None:
    """docs/how-to/alembic.md, "Our migrations": the application's revision holds the application's tables only."""
    project = Project(tmp_path, empty_database_url)
    environment = {**os.environ, "DATABASE_URL": empty_database_url, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-m", "tenure", "schema", "apply"], env=environment, check=True)
    revision = project.autogenerated("reports").read_text()
    assert re.findall(r"op\.(\w+)\(\s*'([^']+)'", revision) == [("create_table", "reports"), ("drop_table", "reports")]
    project.alembic("upgrade", "head")
    assert "No new upgrade operations detected." in project.alembic("check")
    with JobSchedulerService(empty_database_url) as service:
        assert service.check_schema() == []


def test_our_migration_in_a_revision_of_the_applications(
    database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    """docs/how-to/alembic.md, "Your migrations": up makes what ours make, down takes all of it away."""
    project = Project(tmp_path, empty_database_url)
    project.write("migrations/versions/0001_runs.py")
    project.write("migrations/versions/0002_attempts.py")
    project.write("migrations/versions/0003_outbox.py")
    project.write("migrations/versions/0004_scheduling.py")
    project.write("migrations/versions/0005_operating.py")
    project.alembic("upgrade", "head")
    execute(empty_database_url, "DROP TABLE alembic_version")
    execute(database_url, f"DROP TABLE {Table().migrations_quoted}")
    assert catalog(empty_database_url, Table()) == catalog(database_url, Table())
    project.alembic("stamp", "0005")
    revision = project.autogenerated("reports").read_text()
    assert re.findall(r"op\.(\w+)\(\s*'([^']+)'", revision) == [("create_table", "reports"), ("drop_table", "reports")]
    project.alembic("upgrade", "head")
    assert "No new upgrade operations detected." in project.alembic("check")
    project.alembic("downgrade", "base")
    execute(empty_database_url, "DROP TABLE alembic_version")
    left = catalog(empty_database_url, Table())
    assert {part for part, found in left.items() if found} == set()


def test_a_table_that_autogenerate_wrote_is_completed(
    database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    """docs/how-to/alembic.md, `completed.py`: only the note of our migrations is missing; adopting adds it."""
    project = Project(tmp_path, empty_database_url)
    revision = project.autogenerated("runs")
    written = revision.read_text()
    added = "".join(f"    {line}\n" if line else "\n" for line in BLOCKS["completed.py"].splitlines())
    revision.write_text(written.replace("\n\ndef downgrade", f"\n{added}\n\ndef downgrade"))
    project.alembic("upgrade", "head")
    assert "No new upgrade operations detected." in project.alembic("check")
    with JobSchedulerService(empty_database_url) as service:
        (fault,) = service.check_schema()
        assert fault.startswith('"public"."job-scheduler_migrations" is missing')
        assert service.release(won(service))
    assert len(adopt(empty_database_url).steps) == 1 + len(migrations())
    with JobSchedulerService(empty_database_url) as service:
        assert service.check_schema() == []
        assert service.migrate() == []
    execute(empty_database_url, f"DROP TABLE {Table().migrations_quoted}")
    execute(empty_database_url, "DROP TABLE alembic_version, reports")
    execute(database_url, f"DROP TABLE {Table().migrations_quoted}")
    assert catalog(empty_database_url, Table()) == catalog(database_url, Table())


@pytest.mark.parametrize(("schema", "table"), ODD_NAMES)
def test_the_statements_make_the_schema_under_any_name(empty_database_url: str, schema: str | None, table: str) -> None:
    """C9.2: every migration, one statement at a time."""
    with engine_on(empty_database_url, schema) as engine, engine.begin() as connection:
        for name in migrations():
            for statement in migration_statements(name, schema=schema, table=table):
                connection.execute(statement)
    with JobSchedulerService(empty_database_url, schema=schema or "public", table=table) as service:
        assert len(service.check_schema()) == 1
        held = won(service)
        lost = service.acquire(OPTIONS)
        assert not lost.acquired
        assert lost.reason is NotAcquiredReason.RUNNING
        assert service.complete(held)


def test_what_is_not_mapped_is_storage_programs_and_side_tables() -> None:
    """In the order in which they can be run; nothing of it is the table of runs, its types or its indexes."""
    said = [statement.text.split("(")[0].rstrip() for statement in unmapped_statements(schema="jobs", table="runs")]
    assert said[0] == 'ALTER TABLE "jobs"."runs" SET'
    assert said[1] == 'CREATE FUNCTION "jobs"."runs_reclaim"'
    assert said[2].startswith('CREATE TRIGGER "runs_reclaim_trigger"')
    for name in SIDE_TABLES:
        assert f'CREATE TABLE "jobs"."runs_{name}"' in said
    assert not [words for words in said if words.startswith(("CREATE TYPE", 'CREATE TABLE "jobs"."runs"'))]
    assert not [words for words in said if words.startswith("CREATE INDEX") and words.endswith('ON "jobs"."runs"')]
