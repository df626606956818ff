"""``longshore completion bash|zsh|fish``: print a shell completion script."""

from __future__ import annotations

import sys
from typing import Annotated

from tyro.conf import Positional

from launch.cli import VERBS
from protocol.cli.arguments import CommandArguments, format_completion, one_of, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput


class CompletionArguments(CommandArguments):
    """Print a script that completes commands, options, their fixed values, recipe names and ctl's actions in a shell.

    Files are completed after an option that takes one, in bash also in place of run ids and wherever else nothing fits.

    Example: longshore completion bash > ~/.local/share/bash-completion/completions/longshore
    """

    shell: Positional[Annotated[str, one_of(("bash", "zsh", "fish")), option()]]
    """The shell."""


def run(given: CompletionArguments, out: JsonOutput) -> None:
    """Import every command, and print the script."""
    del out
    models = {name: verb.load_command().arguments for name, verb in VERBS.items()}
    sys.stdout.write(format_completion("longshore", models, given.shell))


COMMAND = Command("completion", CompletionArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
