"""Finds the lines of a Dockerfile with which no engine's own builder can build it.  Pure.

Source: BuildKit's frontend/dockerfile (parser, instructions), which is that builder's parser too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from sandbox.tasks.container_files.dockerfile import DockerfileInstruction, read_statements, split_words

_WITH_NAMES = frozenset({"ARG", "ENV", "EXPOSE", "FROM", "LABEL", "MAINTAINER", "USER", "VOLUME", "WORKDIR"})
_NEED_ARGUMENTS = _WITH_NAMES | {"HEALTHCHECK", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL"}
_COPYING = frozenset({"ADD", "COPY"})
_INSTRUCTIONS = _NEED_ARGUMENTS | _COPYING | {"CMD", "ENTRYPOINT"}
_OPTIONS_OF_COPYING = ("chmod", "chown", "exclude", "link")
_OPTIONS = {
    "ADD": (*_OPTIONS_OF_COPYING, "checksum", "keep-git-dir", "unpack"),
    "COPY": (*_OPTIONS_OF_COPYING, "from", "parents"),
    "FROM": ("platform",),
    "HEALTHCHECK": ("interval", "retries", "start-interval", "start-period", "timeout"),
    "RUN": ("device", "mount", "network", "security"),
}
"""Options that BuildKit knows; other instructions have none."""
_OPTION = re.compile(r"--([^\s=]+)(?:=(\S*))?(?:\s+|\Z)")
_ONE_WORD = re.compile(r"[a-z_-][a-z0-9_-]*")
_SHOWN = 60
"""Maximum characters of an instruction that are shown."""


class DockerfileFault(NamedTuple):
    """Why a Dockerfile cannot be built."""

    line: int
    """Its number, from 1."""
    what: str
    why: str


class _Arguments(NamedTuple):
    """The arguments of an instruction."""

    options: dict[str, str]
    rest: str

    @classmethod
    def of(cls, instruction: DockerfileInstruction) -> _Arguments:
        options, at = dict[str, str](), 0
        while found := _OPTION.match(instruction.arguments, at):
            options[found[1]] = found[2] or ""
            at = found.end()
        return cls(options, instruction.arguments[at:])

    @property
    def stage(self) -> str:
        """Name or number of the stage, or the image, from which files are copied; empty for none."""
        return self.options.get("from", "").strip("\"'").lower()


def find_dockerfile_faults(text: str) -> Iterator[DockerfileFault]:
    """Yield the faults in the order of their lines."""
    statements = list(read_statements(text))
    names = _stage_names([each.instruction for each in statements])
    stage = -1
    for statement in statements:
        stage += statement.instruction.name == "FROM"
        for what, why in _find_faults(statement.instruction, stage, names):
            yield DockerfileFault(statement.number, what if len(what) <= _SHOWN else f"{what[:_SHOWN]}…", why)


def find_foreign_stages(instructions: Sequence[DockerfileInstruction]) -> Iterator[str]:
    """Yield the names of one word that COPY takes files from and that no stage has: images, or slips of the pen."""
    names = _stage_names(instructions)
    for each in instructions:
        stage = _Arguments.of(each).stage if each.name == "COPY" else ""
        if _ONE_WORD.fullmatch(stage) and stage not in names:
            yield stage


def _stage_names(instructions: Sequence[DockerfileInstruction]) -> list[str]:
    """Return the names of the stages; empty for one without."""
    froms = [_Arguments.of(each).rest.lower().split() for each in instructions if each.name == "FROM"]
    return ["".join(words[2:3]) for words in froms]


def _find_faults(instruction: DockerfileInstruction, stage: int, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, and why, with an instruction of the stage with a number, which is -1 before the first."""
    name, arguments = instruction.name, _Arguments.of(instruction)
    options, rest = arguments
    whole = f"{name} {instruction.arguments}"
    if name not in _INSTRUCTIONS:
        yield whole, f"no instruction has the name {name[:_SHOWN]}{_near(name, _INSTRUCTIONS)}"
        return
    if stage < 0 and name != "ARG":
        yield whole, "it stands before the first FROM"
    known = _OPTIONS.get(name, ())
    for option in options:
        if option not in known:
            yield f"{name} --{option}", f"no builder knows this option{_near(option, known)}"
    if name in _NEED_ARGUMENTS and not rest:
        yield whole.rstrip(), "it needs an argument"
    elif name in _COPYING and len(rest.split()) <= 1 and '",' not in rest:
        yield whole.rstrip(), "it needs a source and a target"
    elif name in {"ENV", "LABEL"}:
        yield from ((whole, why) for why in _find_unpaired(rest))
    elif name == "FROM" and len(rest.split()) not in {1, 3}:
        yield whole, "it names an image, or an image AS a stage"
    elif name == "SHELL" and not rest.startswith("["):
        yield whole, "it needs a list in JSON"
    elif name == "HEALTHCHECK" and rest.split()[0].upper() not in {"CMD", "NONE"}:
        yield whole, "it needs CMD or NONE"
    copied = arguments.stage if name == "COPY" else ""
    is_later = copied and copied in names and names.index(copied) >= stage
    if is_later or (copied.isdecimal() and int(copied) >= stage):
        yield f"COPY --from={copied}", "no stage above it has this name or number"


def _find_unpaired(rest: str) -> Iterator[str]:
    """Yield why the words of an ENV or LABEL are not names and values."""
    try:
        words = [] if "`" in rest else split_words(rest)  # a backtick may be what escapes
    except ValueError:
        return
    if len(words) == 1 and "=" not in words[0]:
        yield "it has a name without a value"
    elif words and "=" in words[0] and (unpaired := [each for each in words if "=" not in each]):
        yield f"{unpaired[0][:_SHOWN]!r} is not name=value: put a value with spaces in quotes"


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name[:_SHOWN], known, 1)
    return f": did you mean {near[0]}?" if near else ""
