"""The command line as a whole: which database, exit codes, no traceback, no secret (C9.4, C11)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from tenure import (
    DatabaseProblem,
    EmbeddedPostgresError,
    InvalidJobIdentityOptionsError,
    JobDatabaseError,
    JobServiceStateError,
    LostJobLeaseError,
    LostReason,
    OutcomeNotRecordedError,
    TenureError,
)
from tenure.cli import tenure as command_line
from tenure.cli.errors import exit_code_of, without_passwords
from tests.cli.commands import LIMIT_S, Tenure
from tests.support.embedding import children, open_folder
from tests.support.rows import execute, session_url

ALL_VERBS: list[list[str]] = [
    ["ls"],
    ["show", "v2:x"],
    ["schema", "apply"],
    ["schema", "check"],
    ["run", "x", "--run-key", "k", "--", "echo", "ran"],
]
BROKEN_URLS = [
    "postgres://u:secret@host:notaport/db",
    "postgres://u:secret@127.0.0.1:1/db",
    "postgres://u:secret@no-such-host.invalid/db",
    "postgres://u:sec%ret@127.0.0.1/db",
    "mysql://u:secret@127.0.0.1/db",
    "host=127.0.0.1 port=1 password='secret'",
    "password=secret nonsense",
]


def test_help_and_version() -> None:
    """Documented exit codes, in the help of the whole and of `run`."""
    tenure = Tenure(None)
    assert tenure("--version").out == f"tenure {version('tenure')}\n"
    help_text = tenure("--help").out
    for verb in "run", "ls", "show", "schema":
        assert f"\n  {verb} " in help_text
        assert tenure(verb, "--help").code == 0
    assert "69  the database cannot be reached" in help_text
    run_help = tenure("run", "--help").out
    assert all(f"{code}  " in run_help for code in (0, 2, 69, 74, 75, 77, 78, 126, 127, "128+N"))
    assert "tenure.cli.demo" not in help_text


def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Give each command that does something, with the words that call it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, f"{path} {name}")


def test_each_help_has_an_example() -> None:
    """One that can be typed as it stands: on a line by itself."""
    shown = {path: command.get_help(click.Context(command)) for path, command in leaves(command_line, "tenure")}
    assert len(shown) > 20
    assert [path for path, text in shown.items() if not re.search(rf"^ .*\b{path}\b", text, re.MULTILINE)] == []


def test_without_a_verb_help_is_shown_as_a_mistake() -> None:
    """Exit 2, on stderr."""
    done = Tenure(None)()
    assert (done.code, done.out) == (2, "")
    assert "Usage: tenure" in done.err
    assert Tenure(None)("no-such-verb").code == 2


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_extra_is_one_line(missing: str) -> None:
    """It names the extra; exit 1."""
    script = f"import sys; sys.modules[{missing!r}] = None; from tenure.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "pip install 'tenure[cli]'" in done.stderr


@pytest.mark.parametrize("verb", ALL_VERBS)
@pytest.mark.parametrize("url", BROKEN_URLS)
def test_a_database_that_cannot_be_had_is_one_line_without_secrets(url: str, verb: list[str]) -> None:
    """69 if it cannot be reached, 2 if the string cannot be read; nothing was run (C11)."""
    name, *rest = verb
    for tenure, options in (Tenure(url), []), (Tenure(None), ["--database-url", url]):
        done = tenure(name, *rest, *options) if name == "schema" else tenure(name, *options, *rest)
        assert done.code in (2, 69)
        assert (done.out, done.err.count("\n")) == ("", 1)
        assert done.err.startswith("tenure: ")
        assert "secret" not in done.err
        assert "sec%ret" not in done.err


def test_a_wrong_password_is_not_shown(database_url: str) -> None:
    """Neither the wrong one nor the right one."""
    right = urlsplit(database_url).password or ""
    done = Tenure(database_url.replace(right, "wrong-secret"))("ls")
    assert done.code == 69
    assert "authentication failed" in done.err
    assert "wrong-secret" not in done.err
    assert right not in done.err


def test_a_url_in_the_wrong_place_is_not_shown_with_its_password() -> None:
    """A mistake on the command line is repeated without the secret (C11)."""
    for arguments in ["ls", BROKEN_URLS[1]], [BROKEN_URLS[1]], ["ls", "--limit", BROKEN_URLS[1]]:
        done = Tenure(None)(*arguments)
        assert done.code == 2
        assert "u:***@127.0.0.1" in done.err
        assert "secret" not in done.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://u:a@b@h/d x", "postgres://u:***@h/d x"),
        ("host=h password=a b", "host=h password=*** b"),
        (r"password = 'a\' b' host=h", "password = *** host=h"),
        ("postgresql://user:password@host:5432/database", "postgresql://user:password@host:5432/database"),
        ("postgres://h/d?password=a", "postgres://h/d?password=***"),
    ],
)
def test_passwords_are_blanked(text: str, shown: str) -> None:
    """In URLs and in key=value pairs; the example of the documentation stays readable."""
    assert without_passwords(text) == shown


def test_the_url_of_the_option_wins_over_the_environment(database_url: str) -> None:
    """`--database-url`, then TENURE_DATABASE_URL, then DATABASE_URL, then libpq's own variables."""
    nowhere = "postgres://127.0.0.1:1/x"
    assert Tenure(nowhere, {"DATABASE_URL": nowhere})("ls", "--database-url", database_url).code == 0
    assert Tenure(database_url, {"DATABASE_URL": nowhere})("ls").code == 0
    assert Tenure(None, {"TENURE_DATABASE_URL": "", "DATABASE_URL": database_url})("ls").code == 0
    parts = urlsplit(database_url)
    libpq = {
        "PGHOST": str(parts.hostname),
        "PGPORT": str(parts.port),
        "PGUSER": str(parts.username),
        "PGPASSWORD": str(parts.password),
        "PGDATABASE": parts.path.strip("/"),
    }
    assert Tenure(None, libpq)("ls").code == 0
    assert Tenure(nowhere, libpq)("ls").code == 69


def test_a_missing_schema_names_the_command_that_mends_it(empty_database_url: str) -> None:
    """78; and the command that is named does mend it (C9.4)."""
    tenure = Tenure(empty_database_url)
    run = ("run", "x", "--run-key", "k", "--", "echo", "ran")
    for verb in ("ls",), ("show", "v2:x"), run:
        done = tenure(*verb)
        assert (done.code, done.out, done.err.count("\n")) == (78, "", 1)
        assert "Run: tenure schema apply" in done.err
    assert tenure("schema", "apply").code == 0
    assert tenure(*run).out == "ran\n"


def test_an_old_schema_is_said(tenure: Tenure, database_url: str) -> None:
    """78, with the command (C9.4)."""
    execute(database_url, 'ALTER TABLE public."job-scheduler" DROP COLUMN "leaseMs"')
    done = tenure("run", "x", "--run-key", "k", "--", "echo", "ran")
    assert (done.code, done.out, "tenure schema apply" in done.err) == (78, "", True)


def test_a_missing_grant_names_the_grant(database_url: str) -> None:
    """77, and the statement that mends it (C9.4)."""
    execute(database_url, "DROP ROLE IF EXISTS tenure_cli_guest")
    execute(database_url, "CREATE ROLE tenure_cli_guest LOGIN PASSWORD 'guest-secret'")
    parts = urlsplit(database_url)
    guest = f"postgresql://tenure_cli_guest:guest-secret@{parts.hostname}:{parts.port}{parts.path}"
    done = Tenure(guest)("run", "x", "--run-key", "k", "--", "echo", "ran")
    execute(database_url, "DROP ROLE tenure_cli_guest")
    assert (done.code, done.out) == (77, "")
    assert 'GRANT SELECT, INSERT, UPDATE, DELETE ON "public"."job-scheduler" TO "tenure_cli_guest";' in done.err
    assert "guest-secret" not in done.err


def test_a_read_only_server_is_said(database_url: str) -> None:
    """69: as a standby after a failover is, it is not for us now (C9.4)."""
    standby = Tenure(session_url(database_url, default_transaction_read_only="on"))
    done = standby("run", "x", "--run-key", "k", "--", "echo", "ran")
    assert (done.code, done.out) == (69, "")
    assert "read-only" in done.err
    assert standby("ls").code == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidJobIdentityOptionsError("x"), 2),
        (JobServiceStateError("x"), 1),
        (LostJobLeaseError(LostReason.TAKEN_OVER), 75),
        (OutcomeNotRecordedError(None), 74),
        (EmbeddedPostgresError("x"), 69),
        *(
            (JobDatabaseError(DatabaseProblem(name), "x"), 69)
            for name in ("unreachable", "busy", "refused", "read-only")
        ),
        *((JobDatabaseError(DatabaseProblem(name), "x"), 78) for name in ("schema missing", "schema old")),
        (JobDatabaseError(DatabaseProblem.GRANT_MISSING, "x"), 77),
    ],
)
def test_each_error_has_its_exit_code(error: TenureError, code: int) -> None:
    """As the module that defines them documents."""
    assert exit_code_of(error) == code


def test_embedded_uses_a_kept_server_in_the_users_folder() -> None:
    """Started and given its schema when it is first used; what was run is there the next time."""
    with open_folder() as folder, children(folder):
        tenure = Tenure("postgres://127.0.0.1:1/x", {"XDG_DATA_HOME": str(folder)})
        assert tenure("run", "x", "--run-key", "k", "--embedded", "--", "echo", "ran").out == "ran\n"
        assert [run["code"] for run in tenure("ls", "--embedded", "--json").json] == ["x"]
        assert list(Path(folder, "tenure").glob("postgres-*"))
