"""What is sent: identifiers quoted once, parameters numbered in one pass, and nothing of either left (C9.2, C11)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import InvalidJobOptionsError
from tenure.operating.statements import OperatingStatements, Within
from tenure.options import JobSchedulerStatus
from tenure.scheduling.statements import SchedulingStatements
from tenure.schema import migrations
from tenure.statements import (
    SIDE_TABLES,
    Query,
    Statements,
    Table,
    compile_query,
    migration_script,
    quote,
    read_sql,
    schema_script,
)

DEFAULT = Statements(Table())
FILES = [read_sql("queries.sql"), read_sql("scheduling.sql"), read_sql("operating.sql")]
BLOCKS, SCHEDULING_BLOCKS, OPERATING_BLOCKS = (re.findall(r"^-- name: (\w+)$", text, re.MULTILINE) for text in FILES)
SQL = re.sub(r"--.*", "", "\n".join(FILES))
QUOTED = re.compile(r'"(?:[^"]|"")*"')
NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=10)
HOSTILE = [
    Table("a:code", "b:lock_key"),
    Table("${table}", "${type_enum}"),
    Table("$1", "$2"),
    Table("x::y", ":limit"),
    Table("-- name: acquire", "/* */;"),
    Table("100%", "%s %(code)s"),
    Table("back\\1slash", "\\g<0>"),
    Table("'", "''"),
]


def queries(statements: Statements) -> list[Query]:
    """Give every statement of a table, every listing included."""
    named = [getattr(statements, name) for name in BLOCKS if name != "list_runs"]
    listings = [
        statements.list_runs(by_code=by_code, status=status, by_outcome=by_outcome)
        for by_code in (False, True)
        for by_outcome in (False, True)
        for status in (None, *(status.value for status in JobSchedulerStatus))
    ]
    scheduling = SchedulingStatements(statements.table)
    return [
        *named,
        *listings,
        *(getattr(scheduling, name) for name in SCHEDULING_BLOCKS),
        *operating_queries(OperatingStatements(statements.table)),
    ]


EVERY_FILTER = Within(
    code=True, status="FAIL", before=True, since=True, until=True, outcome=True, holder=True, type=True
)


def operating_queries(statements: OperatingStatements) -> list[Query]:
    """Give every statement of those who look on and act, with no filter and with all of them."""
    filtered = ("history", "timeline", "life")
    return [
        *(getattr(statements, name) for name in OPERATING_BLOCKS if name not in filtered),
        *(statements.history(within) for within in (Within(), EVERY_FILTER)),
        *(statements.timeline(by_code=by_code) for by_code in (False, True)),
        *(statements.life(by_id=by_id) for by_id in (False, True)),
    ]


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("job-scheduler", '"job-scheduler"'),
        ("Weird-Schema", '"Weird-Schema"'),
        ('say "hi"', '"say ""hi"""'),
        ('"', '""""'),
        ("a:b ${c} $1", '"a:b ${c} $1"'),
    ],
)
def test_an_identifier_is_quoted_as_postgresql_reads_it(name: str, quoted: str) -> None:
    """C9.2: quotes are doubled, everything else stays as it is."""
    assert quote(name) == quoted


@given(NAME)
def test_a_quoted_identifier_is_one_token_that_says_the_name(name: str) -> None:
    """C9.2, C11: no name can end its own quotes."""
    quoted = quote(name)
    assert QUOTED.fullmatch(quoted)
    assert quoted[1:-1].replace('""', '"') == name


@pytest.mark.parametrize(
    ("schema", "table"), [("s", "t"), ("s" * 63, "t" * 40), ("ж" * 31, "ж" * 20), (" ", "\n"), ("😀" * 15, "😀" * 10)]
)
def test_names_up_to_the_limit_are_taken(schema: str, table: str) -> None:
    """C9.2: counted in bytes of UTF-8, as PostgreSQL counts."""
    assert Table(schema, table).quoted == f'"{schema}"."{table}"'


@pytest.mark.parametrize(
    ("schema", "table", "said"),
    [
        ("", "t", "schema must be 1 to 63 bytes"),
        ("s" * 64, "t", "schema must be 1 to 63 bytes"),
        ("ж" * 32, "t", "schema must be 1 to 63 bytes"),
        ("s\0", "t", "without NUL"),
        ("s", "", "table must be 1 to 40 bytes"),
        ("s", "t" * 41, "table must be 1 to 40 bytes"),
        ("s", "ж" * 21, "table must be 1 to 40 bytes"),
        ("s", "t\0", "without NUL"),
        ("s", "\ud800", "unpaired surrogate"),
        (None, "t", "schema must be a string, not NoneType"),
        ("s", b"t", "table must be a string, not bytes"),
    ],
)
def test_names_that_postgresql_would_cut_or_refuse_are_refused(schema: Any, table: Any, said: str) -> None:
    """C11: naming the field and the limit; a name that was cut in silence could be somebody else's table."""
    with pytest.raises(InvalidJobOptionsError, match=said):
        Table(schema, table)


def test_every_name_that_is_made_of_the_longest_table_fits() -> None:
    """C9.2: PostgreSQL would cut a longer one, and two of them could then be the same."""
    table = Table("s" * 63, "t" * 40)
    names = {part for text in table.identifiers().values() for part in QUOTED.findall(text)}
    names |= set(QUOTED.findall(table.migrations_quoted))
    assert len({name for name in names if "t" * 40 in name}) >= 21
    assert max(len(name) - 2 for name in names) <= 63


def test_every_named_block_is_a_statement() -> None:
    """House, "SQL": one named block a statement, and none that nobody sends."""
    names = {re.sub(r"_[0-9a-f]{8}$", "", query.name) for query in queries(DEFAULT)}
    assert names == {*BLOCKS, *SCHEDULING_BLOCKS, *OPERATING_BLOCKS}
    assert len(BLOCKS) == len(set(BLOCKS))
    assert set(SCHEDULING_BLOCKS) == set(SchedulingStatements.__annotations__)


@pytest.mark.parametrize("query", queries(DEFAULT), ids=lambda query: query.name)
def test_nothing_is_left_to_be_replaced(query: Query) -> None:
    """C9.2: no `:parameter`, no `${identifier}`, no comment; placeholders are numbered from 1 without a gap."""
    text = re.sub(r"'[^']*'", "''", QUOTED.sub("", query.text.decode()))
    assert not re.search(r"\$\{|--|:", text)
    assert {int(number) for number in re.findall(r"\$(\d+)", text)} == set(range(1, len(query.parameters) + 1))
    assert len(set(query.parameters)) == len(query.parameters)


@pytest.mark.parametrize("table", HOSTILE, ids=str)
def test_a_name_is_never_read_as_sql_or_as_a_parameter(table: Table) -> None:
    """C9.2, C11: identifiers and parameters are replaced in one pass; texts differ in names only."""
    for query, plain in zip(queries(Statements(table)), queries(DEFAULT), strict=True):
        assert query.parameters == plain.parameters
        text = query.text.decode()
        for suffix in (
            "_type_enum",
            "_status_enum",
            "_previous",
            "_decided",
            "_released",
            *(f"_{name}" for name in SIDE_TABLES),
            "",
        ):
            text = text.replace(
                f"{quote(table.schema)}.{quote(table.name + suffix)}", f'"public"."job-scheduler{suffix}"'
            )
        assert text == plain.text.decode()


@pytest.mark.parametrize("table", [Table(), *HOSTILE], ids=str)
def test_the_scripts_name_every_thing_once_and_leave_nothing_open(table: Table) -> None:
    """C9.1, C9.2: the same names in the printed schema and in the migrations."""
    for script in (schema_script(table), *(migration_script(name, table) for name in migrations())):
        rest = script
        for text in sorted(table.identifiers().values(), key=len, reverse=True):
            rest = rest.replace(text, "")
        assert "${" not in rest
        assert "job-scheduler" not in rest


def test_a_parameter_that_is_used_twice_has_one_number() -> None:
    """House, "SQL": parameters are numbered in the order in which they first appear."""
    query = compile_query("q", "SELECT :b, :a, :b, x::text, ${t} FROM ${t}", {"t": '":c ${t}"'})
    assert query == Query("q", b'SELECT $1, $2, $1, x::text, ":c ${t}" FROM ":c ${t}"', ("b", "a"))


def test_an_identifier_that_nobody_knows_is_an_error() -> None:
    """House, "SQL": a slip in a file is found when the service is made, not by the server."""
    with pytest.raises(KeyError):
        compile_query("q", "SELECT ${nothing}", {})


@pytest.mark.parametrize("status", [None, *JobSchedulerStatus])
def test_a_listing_is_filtered_by_what_is_asked_for_and_nothing_else(status: JobSchedulerStatus | None) -> None:
    """C11: the code travels as a parameter; the status is one of three literals, for the partial index."""
    value = status.value if status else None
    plain, by_code = (DEFAULT.list_runs(by_code=chosen, status=value) for chosen in (False, True))
    assert plain.parameters == ("limit",)
    assert by_code.parameters == ("code", "limit")
    for query in (plain, by_code):
        condition = query.text.decode().partition(" WHERE ")[2].partition(" ORDER BY ")[0]
        assert re.findall(r"\"status\" = '(\w+)'", condition) == ([value] if value else [])


def test_every_parameter_is_cast() -> None:
    """House, "SQL": `CAST(:x AS …)` each time; an untyped one is ambiguous in a CTE, and `::` hides from SQLAlchemy."""
    parameters = re.findall(r"(\S*)(?<!:):([a-z_]\w*)", SQL)
    assert parameters
    assert [name for before, name in parameters if not before.endswith("CAST(")] == []
    assert "::" not in SQL


def test_no_statement_reads_a_clock_that_stands_still_or_leaves_a_trace_in_the_session() -> None:
    """C3.5, C4.8: `clock_timestamp()` only, ages without `interval`, no session state, no advisory lock."""
    words = {word.upper() for word in re.findall(r"\w+", SQL)}
    assert not words & {"NOW", "CURRENT_TIMESTAMP", "TRANSACTION_TIMESTAMP", "LOCALTIMESTAMP", "INTERVAL"}
    assert not words & {"LISTEN", "NOTIFY", "TEMPORARY", "TEMP", "PG_ADVISORY_LOCK", "SET_CONFIG", "PREPARE"}
    assert not re.search(r"\bnow\(\)|CURRENT_TIMESTAMP", schema_script(Table()))
