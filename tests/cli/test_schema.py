"""`tenure schema print`, `apply` and `check` (C9.1, C9.4)."""

from __future__ import annotations

import pytest

from tests.cli.commands import Tenure
from tests.support.rows import execute


def test_print_needs_no_database_and_gives_sql_that_works(empty_database_url: str) -> None:
    """What is printed makes a table that the check is content with, but for the memory of migrations."""
    printed = Tenure(None)("schema", "print", "--table", "runs")
    assert printed.code == 0
    execute(empty_database_url, printed.out)
    tenure = Tenure(empty_database_url)
    faults = tenure("schema", "check", "--table", "runs", "--json").json["faults"]
    assert [fault for fault in faults if "_migrations" not in fault] == []


def test_apply_twice_is_harmless(empty_database_url: str) -> None:
    """The second time it says that nothing was to be done (C9.1)."""
    tenure = Tenure(empty_database_url)
    first, second = tenure("schema", "apply"), tenure("schema", "apply")
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith('"public"."job-scheduler": applied 0001_')
    assert (second.code, second.out) == (0, '"public"."job-scheduler": up to date\n')


def test_schema_and_table_can_be_named(empty_database_url: str) -> None:
    """Every verb looks where it is told to (C9.2)."""
    tenure = Tenure(empty_database_url)
    where = ("--schema", 'o"dd', "--table", "jobs of ours")
    assert tenure("schema", "apply", *where).code == 0
    assert tenure("schema", "check", *where).code == 0
    assert tenure("run", "x", "--run-key", "k", *where, "--", "true").code == 0
    [run] = tenure("ls", "--json", *where).json
    assert tenure("show", run["id"], *where).code == 0
    assert tenure("ls").code == 78


def test_check_says_what_is_wrong_and_exits_1(tenure: Tenure, database_url: str) -> None:
    """One line a fault; JSON for programs; 0 when all is well."""
    assert tenure("schema", "check").out == '"public"."job-scheduler": as it should be\n'
    assert tenure("schema", "check", "--json").json == {"ok": True, "faults": []}
    execute(database_url, 'ALTER TABLE public."job-scheduler" DROP COLUMN "leaseMs"')
    wrong = tenure("schema", "check")
    assert (wrong.code, wrong.err) == (1, "")
    assert wrong.out == 'The column "leaseMs" is missing. Run: tenure schema apply\n'
    as_json = tenure("schema", "check", "--json")
    assert (as_json.code, as_json.json) == (1, {"ok": False, "faults": [wrong.out.rstrip("\n")]})


@pytest.mark.parametrize("verb", [["schema"], ["schema", "drop"]])
def test_a_missing_or_unknown_verb_is_a_usage_error(tenure: Tenure, verb: list[str]) -> None:
    """Exit 2, with help."""
    done = tenure(*verb)
    assert (done.code, done.out) == (2, "")
    assert "tenure schema" in done.err
