"""Reads a Dockerfile as far as a task needs: working directory, copied files, and whether it must be built. Pure.

A *plain* Dockerfile names an image and a working directory and copies at most longshore's ``rootfs/`` and ``setup.sh``.
The harness copies those itself, so such a task needs no build.
"""

from __future__ import annotations

import fnmatch
import itertools
import posixpath
import re
import shlex
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox.tasks.container_files.unread_lines import UnreadLines
from sandbox.tasks.container_files.variables import BrokenVariableError, LongValueError, expand_variables
from sandbox.tasks.file_tree import is_within

COPY_ROOTFS = "COPY rootfs/ /"
COPY_SETUP = "COPY setup.sh /tmp/setup.sh"
RUN_SETUP = "RUN sh /tmp/setup.sh"
_MOST_CHARS = 65_535
"""Maximum characters of a line, as in Docker's parser."""
PORTABLE_BASE_IMAGE = "debian:bookworm-slim"
"""Image that other harnesses use in place of the pool's base image."""

_QUOTED_OR_HEREDOC = re.compile(
    r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(?<!\S)\d*<<(?P<strip>-?)(?P<quote>["']?)(?P<end>[\w.-]+)(?P=quote)(?=[\s<>|;&)]|$)"""
)
"""A here-document begins with a separate word; ``$((1<<4))``, ``<<<`` and quoted text do not begin one."""

_OWN_FRONTENDS = ("docker/dockerfile", "docker/dockerfile-upstream")


class Heredoc(NamedTuple):
    """A text between two lines of a Dockerfile."""

    name: str
    """Word that ends it."""
    text: str
    """Its lines; of ``<<-`` without the tabs that they begin with."""
    expands: bool
    """Variables in it are replaced, because its word is not quoted."""


class DockerfileInstruction(NamedTuple):
    """One instruction."""

    name: str
    """Name in upper case."""
    arguments: str
    """Arguments in one line: continued lines are joined as Docker does, without a space between them."""


class DockerfileStatement(NamedTuple):
    """One instruction as it is written."""

    instruction: DockerfileInstruction
    line: str
    """It in one line."""
    heredocs: tuple[Heredoc, ...]
    number: int
    """Number of its first line, from 1."""


@dataclass(frozen=True, slots=True)
class PlainDockerfile:
    """The content of a plain Dockerfile."""

    image: str
    workdir: str
    """Working directory; empty if the file names none."""
    copies_rootfs: bool
    runs_setup: bool


def parse_instructions(text: str) -> list[DockerfileInstruction]:
    """Return the instructions, without comments and the texts of here-documents."""
    return [each.instruction for each in read_statements(text)]


def read_statements(text: str) -> Iterator[DockerfileStatement]:
    """Yield the instructions with their here-documents; comments are left out.  Only a line feed ends a line."""
    lines = UnreadLines(line.rstrip("\r") for line in text.removeprefix("\ufeff").split("\n"))
    escape = re.escape(escape_character(text))
    continues = re.compile(rf"(?<!{escape}){escape}[ \t]*$")
    while lines:
        line = lines.take().lstrip()
        if not line or line.startswith("#"):
            continue
        parts, number = [line], lines.taken
        while lines and continues.search(parts[-1]):
            parts[-1] = continues.sub("", parts[-1])
            parts.append(_next_line(lines))
        line = continues.sub("", "".join(parts))
        if not line.strip():
            continue
        name, *rests = line.split(maxsplit=1)
        instruction = DockerfileInstruction(name.upper(), rests[0].rstrip() if rests else "")
        has_heredocs = instruction.name in {"RUN", "COPY", "ADD"}
        heredocs = tuple(_take_heredocs(instruction.arguments, lines)) if has_heredocs else ()
        yield DockerfileStatement(instruction, line, heredocs, number)


def escape_character(text: str) -> str:
    """Return the character at the end of a line that goes on: a backslash unless a directive names the backtick."""
    return "`" if _find_directive(text, "escape") == "`" else "\\"


def find_foreign_frontend(text: str, args: Mapping[str, str]) -> str:
    """Return the image by which a file or its build's arguments want it to be read; empty for Docker's own frontend."""
    named = args.get("BUILDKIT_SYNTAX") or _find_directive(text, "syntax")
    folders, _, name = named.partition("@")[0].rpartition("/")
    image = f"{folders.rpartition('/')[2]}/{name.partition(':')[0]}"  # without registry and version
    return "" if image in _OWN_FRONTENDS else named


def _find_directive(text: str, name: str) -> str:
    """Return the value of one of the comments with which a file may begin; empty without it."""
    for line in text.removeprefix("\ufeff").split("\n"):
        directive = re.match(r"\s*#\s*(\w+)\s*=\s*(\S*)", line)
        if directive is None:
            break
        if directive[1].lower() == name:
            return directive[2]
    return ""


def _next_line(lines: UnreadLines) -> str:
    """Take lines up to the next one that is neither empty nor a comment, and return that."""
    while lines:
        line = lines.take()
        if not re.match(r"\s*(?:#|$)", line):
            return line
    return ""


def _take_heredocs(rest: str, lines: UnreadLines) -> Iterator[Heredoc]:
    """Take the lines of each here-document that ``rest`` begins; one that never ends is ignored."""
    for found in _QUOTED_OR_HEREDOC.finditer(rest):
        if found["end"]:
            content = lines.take_until(found["end"], without_tabs=bool(found["strip"]))
            if content is not None:
                yield Heredoc(found["end"], "".join(f"{line}\n" for line in content), not found["quote"])


def parse_plain_dockerfile(text: str) -> PlainDockerfile | None:
    """Return the content of a plain Dockerfile; None when the image must be built."""
    image = workdir = ""
    harness_lines: list[str] = []
    for name, rest in parse_instructions(text):
        whole = f"{name} {rest}"
        if name == "FROM" and not image and " " not in rest and "$" not in rest:
            image = rest
        elif name == "WORKDIR" and image and rest.startswith("/") and "$" not in rest and not harness_lines:
            workdir = posixpath.normpath(rest)
        elif image and whole in {COPY_ROOTFS, COPY_SETUP, RUN_SETUP}:
            harness_lines.append(whole)
        else:
            return None
    if (
        find_foreign_frontend(text, {})
        or not image
        or harness_lines
        not in (
            [],
            [COPY_ROOTFS],
            [COPY_SETUP, RUN_SETUP],
            [COPY_ROOTFS, COPY_SETUP, RUN_SETUP],
        )
    ):
        return None
    return PlainDockerfile(image, workdir, COPY_ROOTFS in harness_lines, COPY_SETUP in harness_lines)


def write_plain_dockerfile(wanted: PlainDockerfile) -> str:
    """Write a Dockerfile that :func:`parse_plain_dockerfile` reads back."""
    lines = [f"FROM {wanted.image or PORTABLE_BASE_IMAGE}"]
    lines += [f"WORKDIR {wanted.workdir}"] if wanted.workdir else []
    lines += [COPY_ROOTFS] if wanted.copies_rootfs else []
    lines += [COPY_SETUP, RUN_SETUP] if wanted.runs_setup else []
    return "".join(f"{line}\n" for line in lines)


@dataclass(slots=True)
class _Stage:
    base: _Stage | None = None
    """Stage from which it inherits; None for an image."""
    instructions: list[DockerfileInstruction] = field(default_factory=list[DockerfileInstruction])


class _ImageSettings(NamedTuple):
    workdir: str
    """Empty if only the image will tell."""
    env: dict[str, str]


def find_workdir(parsed: Sequence[DockerfileInstruction], args: Mapping[str, str], target: str = "") -> str:
    """Return the image's working directory; empty if the file sets none, or only the image will tell which."""
    return _image(parsed, args, target).workdir


def find_environment(
    parsed: Sequence[DockerfileInstruction], args: Mapping[str, str], target: str = ""
) -> dict[str, str]:
    """Return the environment variables that the file sets, with variables in their values not replaced."""
    return _image(parsed, args, target).env


def _image(parsed: Sequence[DockerfileInstruction], args: Mapping[str, str], target: str) -> _ImageSettings:
    """Return what the image's stage and those from which it inherits set, in their order."""
    lineage: list[_Stage] = []
    stage = _find_stage(parsed, target)
    while stage is not None:
        lineage.append(stage)
        stage = stage.base
    workdir, variables, env = "", dict[str, str](), dict[str, str]()
    for name, rest in itertools.chain.from_iterable(stage.instructions for stage in reversed(lineage)):
        if name == "ARG":
            variables.update({key: args.get(key, value or "") for key, value in parse_arguments(rest).items()})
        elif name == "ENV":
            values = parse_environment(rest)
            variables.update(values)
            env.update(values)
        elif name == "WORKDIR":
            try:
                path = expand_known(rest.strip("\"'"), ChainMap(env, variables))
            except LongValueError:
                path = None
            whole = posixpath.join(workdir, path or "")
            workdir = posixpath.normpath(whole) if path and whole.startswith("/") else ""
    return _ImageSettings(workdir, env)


def _find_stage(parsed: Sequence[DockerfileInstruction], target: str) -> _Stage:
    """Return the stage that becomes the image: the first one with the name ``target``, or else the last one."""
    stages: dict[str, _Stage] = {}
    now = _Stage()
    for each in parsed:
        if each.name == "FROM":
            if target and stages.get(target.lower()) is now:
                break
            words = [word.lower() for word in each.arguments.split() if not word.startswith("--")]
            now = _Stage(stages.get(words[0] if words else ""))
            stages[words[2] if len(words) > 2 else f"stage {len(stages)}"] = now
        else:
            now.instructions.append(each)
    return now


def parse_environment(rest: str) -> dict[str, str]:
    """Return the variables of an ENV's arguments, with variables in their values not replaced."""
    try:
        words = split_words(rest)
    except ValueError:
        return {}
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])}
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def split_words(rest: str) -> list[str]:
    """Split the arguments of an ENV, LABEL or ARG as a shell does.  Raises ValueError, also for what is longer than the
    lines that an engine reads."""
    if len(rest) > _MOST_CHARS:
        raise ValueError(f"more than {_MOST_CHARS} characters")
    return shlex.split(rest)


def parse_arguments(rest: str) -> dict[str, str | None]:
    """Return the defaults of an ARG's arguments, with variables in them not replaced; None for one without."""
    try:
        words = [word.partition("=") for word in split_words(rest)]
    except ValueError:
        return {}
    return {key: value if equals else None for key, equals, value in words}


def expand_known(text: str, variables: Mapping[str, str]) -> str | None:
    """Return ``text`` with its variables replaced; None when one of them is unknown or broken.

    Raises LongValueError."""
    try:
        expanded, unknown = expand_variables(text, variables, empty_is_unset=True)
    except LongValueError:
        raise
    except BrokenVariableError:
        return None
    return None if unknown else expanded


def copied_sources(parsed: Sequence[DockerfileInstruction]) -> Iterator[str]:
    """Yield the sources of every COPY and ADD in the build context, except those that hold a variable."""
    for name, rest in parsed:
        if name not in {"COPY", "ADD"} or "<<" in rest:
            continue
        words = rest.split()
        while words and words[0].startswith("--"):
            if words[0].startswith("--from="):
                words = []
                break
            words = words[1:]
        if words and words[0].startswith("["):
            words = re.findall(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)', rest, re.DOTALL)
        for source in words[:-1]:
            if "$" not in source and not re.match(r"\w+://|git@", source):
                yield posixpath.normpath(source.strip("\"'").lstrip("/") or ".")


def copies_path(source: str, path: str) -> bool:
    """Return whether a COPY of ``source``, from the root of the context, copies ``path``."""
    depth = source.count("/") + 1
    return is_within(path, [source]) or fnmatch.fnmatchcase("/".join(path.split("/")[:depth]), source)
