"""`tenure completion`: let a shell complete verbs, options and codes of jobs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tenure.cli.errors import ExitCode
from tenure.cli.output import emit

_VARIABLE = "_TENURE_COMPLETE"


@click.command(
    epilog="""\b
Examples:
  bash  tenure completion bash > ~/.local/share/bash-completion/completions/tenure
  zsh   tenure completion zsh > "${fpath[1]}/_tenure"
  fish  tenure completion fish > ~/.config/fish/completions/tenure.fish
Then open a new shell. Codes of jobs are those of the database that the
environment or --database-url names; one that is away offers none."""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that lets a shell complete verbs, options and codes of jobs."""
    kind = get_completion_class(shell)
    assert kind is not None, "each of the choices has one"
    emit(kind(context.find_root().command, {}, "tenure", _VARIABLE).source())
    return ExitCode.OK
