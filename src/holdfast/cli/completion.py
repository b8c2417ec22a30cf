"""`completion`: the script that makes a shell complete commands, options, session ids and strategy names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.cli.options import common, settings
from holdfast.cli.output import print_json
from holdfast.core.errors import ExitCode


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common()
def completion_command(shell: str) -> int:
    """Print the completion script for a shell.

    \b
    bash: eval "$(holdfast completion bash)"    in ~/.bashrc
    zsh:  eval "$(holdfast completion zsh)"     in ~/.zshrc
    fish: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(click.get_current_context().find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    if settings().json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
    return ExitCode.OK
