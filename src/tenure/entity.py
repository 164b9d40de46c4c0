"""The table of runs as a SQLAlchemy 2 declarative class, for an application's own queries and its Alembic.

`JobScheduler` stands on a base of its own. `JobSchedulerMixin` puts the same class on the application's base, and
under another name or schema (C9.2)::

    class JobScheduler(JobSchedulerMixin, Base):
        __tablename__ = "runs"
        __table_schema__ = "jobs"

Runs are written by the services; this class is for looking on, joining and migrating. It is for PostgreSQL only.
Leave `__table_schema__` out for the schema that comes first on the connection's search path, `public` as a rule:
Alembic takes a table that names its default schema for another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

try:
    from sqlalchemy import (
        BigInteger,
        Connection,
        DateTime,
        Enum,
        FromClause,
        Identity,
        Index,
        Integer,
        MetaData,
        PrimaryKeyConstraint,
        String,
        Table,
        TextClause,
        UniqueConstraint,
        Uuid,
        text,
    )
    from sqlalchemy.dialects.postgresql import JSONB
    from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column
    from sqlalchemy.schema import conv
    from sqlalchemy.sql.schema import SchemaConst
except ImportError as error:
    raise ImportError("tenure.entity needs SQLAlchemy 2. Install it: pip install 'tenure[sqlalchemy]'") from error

from tenure.options import JobSchedulerStatus, JobSchedulerType
from tenure.statements import DEFAULT_SCHEMA, DEFAULT_TABLE, SIDE_TABLES, compile_query, quote, read_sql
from tenure.statements import Table as RunTable

__all__ = ["JobScheduler", "JobSchedulerMixin", "include_name", "migration_statements", "unmapped_statements"]

_STATEMENT_END = re.compile(r";\n(?=\n|--|(?!BEGIN|END)[A-Z])")
_LEADING = re.compile(r"\A(?:\s|--.*\n)*")
_STORAGE = "ALTER TABLE ${table} SET (fillfactor = 50)"
_MAPPED = re.compile(r"CREATE (TYPE|TABLE \$\{table\}|INDEX \S+ ON \$\{table\}) ")
_FUNCTIONS = {"reclaim_function": "()", "remember_function": "()", "previous_function": "(oid, uuid, uuid)"}
_ATOMIC = {"decided_function": "(varchar, varchar)", "released_function": "(uuid, uuid)"}
_DUE = '"status" <> \'SUCCESS\' AND "scheduledAt" IS NOT NULL AND "outcome" IS DISTINCT FROM \'exhausted\''
_SUCCEEDED = "\"status\" = 'SUCCESS' AND COALESCE(\"outcome\", 'succeeded') = 'succeeded'"
_EXHAUSTED = "\"outcome\" = 'exhausted'"
_CLOCK = text("clock_timestamp()")

IncludeName = Callable[[str | None, str, Mapping[Any, str | None]], bool]


class JobSchedulerMixin:
    """Map the table of runs on a declarative base; the mapped class may be given relationships and properties.

    Names of constraints, indexes and enum types follow `__tablename__` and ignore the naming convention of the
    base's metadata, so that they are those of `tenure schema apply`. `create_all` and `drop_all` take along what
    SQLAlchemy does not map; Alembic's `op.create_table` does not: see `unmapped_statements`.

    Timestamps are aware. Raises `InvalidJobOptionsError` when the class is made under a name that is too long.
    """

    __tablename__ = DEFAULT_TABLE
    __table_schema__: ClassVar[str | SchemaConst | None] = None
    if TYPE_CHECKING:
        metadata: ClassVar[MetaData]
        __table__: ClassVar[FromClause]

    # Declared attributes come last in a table unless they are sorted.
    id: Mapped[UUID] = mapped_column("id", Uuid(), sort_order=-2, server_default=text("gen_random_uuid()"))
    lock_key: Mapped[str] = mapped_column("lockKey", String(320), sort_order=-2)
    code: Mapped[str] = mapped_column("code", String(64), sort_order=-2)
    name: Mapped[str | None] = mapped_column("name", String(256), sort_order=-2)

    @declared_attr
    @classmethod
    def type(cls) -> Mapped[JobSchedulerType]:
        return mapped_column("type", _enum(cls, "type", JobSchedulerType), sort_order=-1)

    @declared_attr
    @classmethod
    def status(cls) -> Mapped[JobSchedulerStatus]:
        return mapped_column("status", _enum(cls, "status", JobSchedulerStatus), sort_order=-1)

    owner_token: Mapped[UUID] = mapped_column("ownerToken", Uuid())
    data: Mapped[dict[str, Any] | None] = mapped_column("data", JSONB(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column("createdAt", DateTime(timezone=True), server_default=_CLOCK)
    modified_at: Mapped[datetime] = mapped_column("modifiedAt", DateTime(timezone=True), server_default=_CLOCK)
    fencing_token: Mapped[int] = mapped_column("fencingToken", BigInteger(), Identity(always=False))
    attempt: Mapped[int] = mapped_column("attempt", Integer(), server_default=text("1"))
    lease_ms: Mapped[int | None] = mapped_column("leaseMs", BigInteger())
    owner: Mapped[str | None] = mapped_column("owner", String(256))
    run_key: Mapped[str | None] = mapped_column("runKey", String(1024))
    started_at: Mapped[datetime | None] = mapped_column("startedAt", DateTime(timezone=True), server_default=_CLOCK)
    finished_at: Mapped[datetime | None] = mapped_column("finishedAt", DateTime(timezone=True))
    scheduled_at: Mapped[datetime | None] = mapped_column("scheduledAt", DateTime(timezone=True))
    outcome: Mapped[str | None] = mapped_column("outcome", String(16))
    retry_at: Mapped[datetime | None] = mapped_column("retryAt", DateTime(timezone=True))

    @declared_attr.directive
    @classmethod
    def __table_args__(cls) -> Any:
        return _table_arguments(cls.__table_schema__, cls.__tablename__)

    def __repr__(self) -> str:
        """Show which run it is and where it stands, as far as loaded, and never the owner token (C11)."""
        loaded = vars(self)
        shown = ("code", "run_key", "type", "status", "attempt")
        return f"{type(self).__name__}({', '.join(f'{name}={loaded[name]!r}' for name in shown if name in loaded)})"


def include_name(*entities: type[JobSchedulerMixin]) -> IncludeName:
    """Give Alembic's `include_name` hook that leaves out tenure's tables beside the table of runs.

    They are for tenure alone: what each attempt left, checkpoints, jobs and nodes, migrations. Without the hook,
    autogenerate proposes to drop them. Combine it with a hook of your own by `and`.
    """
    hidden = {
        (entity.__table__.schema, f"{entity.__tablename__}_{name}")
        for entity in entities
        for name in ("migrations", *SIDE_TABLES)
    }

    def included(name: str | None, type_: str, parent_names: Mapping[Any, str | None]) -> bool:
        return type_ != "table" or (parent_names.get("schema_name"), name) not in hidden

    return included


def migration_statements(name: str, *, schema: str | None = None, table: str = DEFAULT_TABLE) -> list[TextClause]:
    """Give one of tenure's migrations, such as `0001_initial.sql`, for `op.execute`; a released one never changes.

    One statement each, so that drivers which prepare everything (asyncpg) run them, too. `schema` left out is the
    first on the search path.
    """
    return _bound(_split(read_sql(f"migrations/{name}")), schema, table)


def unmapped_statements(*, schema: str | None = None, table: str = DEFAULT_TABLE) -> list[TextClause]:
    """Give what SQLAlchemy's model does not hold, for `op.execute` after `op.create_table`.

    The room in each page that keeps renewals heap-only (C5.4), the functions and triggers that fence takeovers by
    NestJS nodes and remember former attempts (C4.3, C7.6), and tenure's tables beside the table of runs. Without them
    `tenure schema check` complains.
    """
    further = [statement for statement in _split(read_sql("schema.sql")) if not _MAPPED.match(statement)]
    return _bound([_STORAGE, *further], schema, table)


def _enum(entity: type[JobSchedulerMixin], column: str, values: type[StrEnum]) -> Enum:
    """Put an enum type where its table is: SQLAlchemy 2.1 takes the metadata's schema, 2.0 none."""
    schema = entity.__table_schema__
    if schema is None:
        schema = entity.metadata.schema
    elif schema is SchemaConst.BLANK_SCHEMA:
        schema = None
    return Enum(values, name=f"{entity.__tablename__}_{column}_enum", schema=schema)


def _table_arguments(schema: str | SchemaConst | None, table: str) -> tuple[Any, ...]:
    RunTable(schema if isinstance(schema, str) else DEFAULT_SCHEMA, table)

    def own(suffix: str) -> str:
        return conv(f"{table}_{suffix}")

    return (
        PrimaryKeyConstraint("id", name=own("pkey")),
        UniqueConstraint("lockKey", name=own("lock_key_key")),
        UniqueConstraint("ownerToken", name=own("owner_token_key")),
        UniqueConstraint("fencingToken", name=own("fencing_token_key")),
        Index(own("code_idx"), "code", "fencingToken"),
        Index(own("unfinished_idx"), "status", "fencingToken", postgresql_where=text("\"status\" <> 'SUCCESS'")),
        Index(own("due_idx"), "code", postgresql_where=text(_DUE)),
        Index(own("succeeded_idx"), "code", "fencingToken", postgresql_where=text(_SUCCEEDED)),
        Index(own("exhausted_idx"), "code", "fencingToken", postgresql_where=text(_EXHAUSTED)),
        {
            "schema": schema,
            "listeners": [
                ("after_create", _create_unmapped),
                ("before_drop", _drop_side_tables),
                ("after_drop", _drop_functions),
            ],
        },
    )


def _create_unmapped(target: Table, connection: Connection, **_: Any) -> None:
    for statement in unmapped_statements(schema=connection.schema_for_object(target), table=target.name):
        connection.execute(statement)


def _drop_side_tables(target: Table, connection: Connection, **_: Any) -> None:
    """They refer to the table of runs, so they go first, and what is written in terms of them before."""
    identifiers = _identifiers(connection.schema_for_object(target), target.name)
    for name, arguments in _ATOMIC.items():
        connection.execute(_verbatim(f"DROP FUNCTION IF EXISTS {identifiers[name]}{arguments}"))
    for name in reversed(SIDE_TABLES):
        connection.execute(_verbatim(f"DROP TABLE IF EXISTS {identifiers[name]}"))


def _drop_functions(target: Table, connection: Connection, **_: Any) -> None:
    identifiers = _identifiers(connection.schema_for_object(target), target.name)
    for name, arguments in _FUNCTIONS.items():
        connection.execute(_verbatim(f"DROP FUNCTION IF EXISTS {identifiers[name]}{arguments}"))


def _split(script: str) -> list[str]:
    """Cut a file of `sql/` into statements, before the names are put in: those may hold anything."""
    statements = (_LEADING.sub("", block).rstrip(";\n") for block in _STATEMENT_END.split(script))
    return [statement for statement in statements if statement]


def _bound(statements: list[str], schema: str | None, table: str) -> list[TextClause]:
    identifiers = _identifiers(schema, table)
    return [_verbatim(compile_query("", statement, identifiers).text.decode()) for statement in statements]


def _identifiers(schema: str | None, table: str) -> dict[str, str]:
    names = RunTable(schema or DEFAULT_SCHEMA, table).identifiers()
    if schema is not None:
        return names
    return {token: name.removeprefix(f"{quote(DEFAULT_SCHEMA)}.") for token, name in names.items()}


def _verbatim(sql: str) -> TextClause:
    """Keep colons of names from being taken for parameters."""
    return text(re.sub(r":(?=\w)", r"\\:", sql))


class _Base(DeclarativeBase):
    """Keep the ready-made class in a metadata of its own."""


class JobScheduler(JobSchedulerMixin, _Base):
    """Be the table `"job-scheduler"` in the default schema; its metadata is `JobScheduler.metadata`."""
