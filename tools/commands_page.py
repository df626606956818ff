"""Write docs/commands.md: the help text of every command.

With ``--check`` nothing is written, and the exit code is 1 if the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launch.cli import VERB_GROUPS  # noqa: E402  the checkout is not always installed
from protocol.cli.arguments import format_help, subcommands  # noqa: E402  as above

PAGE = ROOT / "docs" / "commands.md"
HEAD = """\
# Every command

<!-- Made by `make docs` (tools/commands_page.py) from the commands' own arguments: change the help texts there. -->

`longshore VERB` and `python -m MODULE` are the same program; `longshore` alone lists the verbs. Exit codes: 0, the
command succeeded and its own checks passed; 1, it failed; 2, a mistake that you can fix (one line on standard error
says how); 130, Ctrl-C. Results go to standard output, progress and errors to standard error. With `--json`, which all
but servers and `completion` have, standard output is exactly one object, also after an error. Options cannot be
abbreviated. A run is named by its directory, or by its id if it is in `runs`. `longshore --version` prints the version;
`longshore completion bash|zsh|fish` prints a shell completion script.
"""
_FRAME = str.maketrans("", "", "╭╮╰╯─│")


def main() -> int:
    page = commands_page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


def commands_page() -> str:
    """Return the whole page."""
    lines = [HEAD]
    for group, verbs in VERB_GROUPS.items():
        lines += [f"## {group.capitalize()}", ""]
        for name, verb in verbs.items():
            arguments = verb.load_command().arguments
            lines += [f"### longshore {name}", "", f"`python -m {verb.module}`", ""]
            lines += help_block(format_help(arguments, f"longshore {name}"))
            for inner in subcommands(arguments):
                lines += [f"#### longshore {name} {inner}", ""]
                lines += help_block(format_help(arguments, f"longshore {name}", [inner]))
    return "\n".join(lines).rstrip() + "\n"


def help_block(text: str) -> Iterator[str]:
    """Yield a help text without its frames, as a block of text."""
    yield "```text"
    blank = True
    for line in text.splitlines():
        plain = line.translate(_FRAME).rstrip().removeprefix(" ")
        if plain and not plain.strip("-"):
            continue
        if plain or not blank:
            yield plain
        blank = not plain
    yield from ("```", "")


if __name__ == "__main__":
    sys.exit(main())
