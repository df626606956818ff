"""The commands that the documentation shows, each with the mark that says what it wants (docs/index.md)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from launch.cli import VERBS

ROOT = Path(__file__).parents[2]
_SETS = tuple(ROOT / f"sandbox/datasets/{name}/README.md" for name in ("longshore_bench", "longshore_swe"))
PAGES = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", *_SETS)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^ {4}.*\n)(?:(?:^ {4}.*|^)\n)*", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#(?=\s)(.*)$")
_MARK = re.compile(r"\[(\w+)\]")
_FILE = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_STARTS = re.compile(r"longshore \w|make \w|(\.venv/bin/)?python (-m |[\w/]+\.py\b)|(ray|sbatch|kubectl) \w")
_NOT_HERE = ("ray", "sbatch", "kubectl")
"""Programs of a cluster."""
_LONG = {
    *("launch.bench", "launch.cluster", "launch.environment", "launch.monitor", "launch.sft", "launch.sweep"),
    *("sandbox.router", "sandbox.server", "sandbox.stress", "pytest"),
}


class CommandMark(StrEnum):
    """What a command needs, as the mark in its comment says."""

    NONE = ""
    DOCKER = "Docker"
    MINUTES = "minutes"
    LIVE = "live"
    STAYS = "stays"
    YOURS = "yours"
    GPU = "GPU"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class DocumentedCommand:
    """One command of a page."""

    page: Path
    words: tuple[str, ...]
    """The command's words after shell splitting, without leading variable assignments."""
    mark: CommandMark

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {shlex.join(self.words)}"

    @property
    def module(self) -> str:
        """The module that ``python -m`` runs; empty for another program."""
        if self.words[0] == "longshore":
            return VERBS[self.words[1]].module if self.words[1] in VERBS else ""
        return self.words[2] if self.words[1:2] == ("-m",) else ""

    @property
    def is_long(self) -> bool:
        """Whether the command takes minutes or keeps running, which a page has to say."""
        asks = "--dry-run" in self.words or (self.module == "launch.monitor" and "--json" in self.words)
        return self.words[0] in _NOT_HERE or (self.module in _LONG and not asks)

    @property
    def arguments(self) -> list[str]:
        return list(self.words[2 if self.words[0] == "longshore" else 3 :])


def read_commands(page: Path) -> list[DocumentedCommand]:
    """The commands in a page's blocks of code.  Raises ValueError for a mark that there is not."""
    return [command for block in _blocks(page.read_text()) for command in _commands(page, block)]


def read_files(page: Path) -> dict[str, str]:
    """The files that a page shows whole: their blocks begin with ``# PATH``."""
    return dict(_FILE.findall(page.read_text()))


def _blocks(text: str) -> Iterator[str]:
    for kind, block in _FENCE.findall(text):
        if kind in {"", "sh"} and not block.startswith("# "):
            yield block
    for match in _INDENTED.finditer(_FENCE.sub("", text)):
        yield "\n".join(line[4:] for line in match[0].splitlines())


def _commands(page: Path, block: str) -> Iterator[DocumentedCommand]:
    for line in block.replace("\\\n", " ").splitlines():
        comment = _COMMENT.search(line)
        marks = _MARK.findall(comment[1]) if comment else []
        try:
            words = shlex.split(line[: comment.start()] if comment else line)
        except ValueError:
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if _STARTS.match(" ".join(words)):
            yield DocumentedCommand(page, tuple(words), CommandMark(marks[0]) if marks else CommandMark.NONE)
