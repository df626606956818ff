"""Write docs/commands.md: every command and all of its options, from the parsers that read them.

A command is what ``longshore`` lists, or a package of another room with a ``__main__``.  Its module is run with a
parser that hands itself over in place of parsing, so what is written is what is read.  ``--check`` writes nothing; exit
code 1 where the page is not what it would write.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, cast
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launch.cli import commands  # noqa: E402  the checkout is not always installed
from protocol.cli.parser import CommandLineParser  # noqa: E402  as above

PAGE = ROOT / "docs" / "commands.md"
ROOMS = ("sandbox", "actors", "learner", "protocol")
HEAD = """\
# Every command

<!-- Made by `make docs` (tools/commands_page.py) from the commands' own parsers: change the help texts there. -->

`longshore X` and `python -m launch.X` are the same. A command ends with 0 where it did what was asked and its own
checks held, 1 where it failed, 2 where you can mend it (one line on standard error says how), and 130 after Ctrl-C.
With `--json` it prints exactly one object on standard output, last; everything else goes to standard error. Options are
written in full.
"""


class Taken(BaseException):
    """A command's parser, at the moment at which it would parse.  No error: no handler of one may keep it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def main() -> int:
    page = commands_page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


def modules() -> list[str]:
    """What can be run as ``python -m``, ours first."""
    others = sorted(path.parent.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("__main__.py"))
    return [f"launch.{name}" for name in commands()] + [".".join(path.parts) for path in others]


def parser_of(module: str) -> argparse.ArgumentParser:
    """The parser that ``python -m module`` reads its arguments with."""

    def hand_over(self: argparse.ArgumentParser, *given: object, **settings: object) -> NoReturn:
        del given, settings
        raise Taken(self)

    with mock.patch.object(CommandLineParser, "parse_args", hand_over), mock.patch.object(sys, "argv", [module]):
        try:
            runpy.run_module(module, run_name="__main__")
        except Taken as taken:
            return taken.parser
    raise LookupError(f"{module} has ended without reading its arguments by protocol.cli.parser.Parser")


def commands_page() -> str:
    """The whole page."""
    described, lines = commands(), [HEAD]
    for module in modules():
        room, _, name = module.partition(".")
        title = f"longshore {name}" if room == "launch" else f"python -m {module}"
        parser = parser_of(module)
        lines += [f"## {title}", "", *told(parser, described.get(name, "") if room == "launch" else "")]
        lines += section(title, parser, 3)
    return "\n".join(lines).rstrip() + "\n"


def section(title: str, parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    """How a command is written, what each of its words is, and the same for each command below it."""
    yield from ["```text", usage(title, parser), "```", ""]
    rows = [row(action, parser) for action in actions(parser) if action.help != argparse.SUPPRESS and not below(action)]
    if rows:
        yield from ["| | |", "|---|---|", *rows, ""]
    for action in actions(parser):
        for name, inner in below(action).items():
            yield from [f"{'#' * depth} {title} {name}", "", *told(inner, listed(action, name))]
            yield from section(f"{title} {name}", inner, min(depth + 1, 6))


def told(parser: argparse.ArgumentParser, otherwise: str) -> list[str]:
    """What a command says of itself, as a paragraph; a docstring's first one where it has been given one whole."""
    text = parser.description or otherwise
    first = text.split("\n\n")[0]
    if first.startswith("`python -m"):
        first = first.partition("`: ")[2]
    said = plain(first)
    return [said[:1].upper() + said[1:].rstrip(".") + ".", ""] if said else []


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Its options and words, without those that every command has."""
    every = parser._actions  # noqa: SLF001  argparse has no other door to them
    return [action for action in every if action.dest != "help"]


def below(action: argparse.Action) -> dict[str, argparse.ArgumentParser]:
    """The commands that a word chooses among; none where it chooses none."""
    found: object = action.choices
    named = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return {name: parser for name, parser in named.items() if isinstance(parser, argparse.ArgumentParser)}


def listed(action: argparse.Action, name: str) -> str:
    """What the list of commands says of one."""
    choices: list[argparse.Action] = cast("Any", action)._get_subactions()  # noqa: SLF001  argparse has no other door to them
    return next((choice.help or "" for choice in choices if choice.dest == name), "")


def usage(title: str, parser: argparse.ArgumentParser) -> str:
    words = [title]
    if any(action.option_strings for action in actions(parser)):
        words.append("[OPTION …]")
    return " ".join([*words, *(word(action) for action in actions(parser) if not action.option_strings)])


def word(action: argparse.Action) -> str:
    """A positional argument as it stands in a usage line."""
    if below(action):
        return "COMMAND …"
    name = metavar(action)
    return {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name)


def metavar(action: argparse.Action) -> str:
    if action.metavar is not None:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    choices = cast("Any", action.choices)
    if choices is not None:
        return "{" + ",".join(map(str, choices)) + "}"
    return action.dest.upper()


def row(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """One line of a table: how it is written, and what it does."""
    if not action.option_strings:
        written = word(action)
    elif action.nargs == 0:
        written = ", ".join(action.option_strings)
    else:
        value = f"[{metavar(action)}]" if action.nargs == "?" else metavar(action)
        written = f"{', '.join(action.option_strings)} {value}"
    settings = {key: value for key, value in vars(action).items() if value is not argparse.SUPPRESS}
    text = plain((action.help or "") % {**settings, "prog": parser.prog}) if action.help else ""
    needed = " Needed." if action.option_strings and action.required else ""
    return f"| `{written.replace('|', '/')}` | {text}{needed} |"


def plain(text: str) -> str:
    """A help text as one line of Markdown, in a cell of a table."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    sys.exit(main())
