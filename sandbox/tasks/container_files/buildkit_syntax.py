"""Rewrites what only BuildKit understands in a Dockerfile into what every engine's own builder knows.  Pure.

Images are built by the engine's own builder, because only its RUN steps can have the network of a container, such as
that of the pool's egress proxy.  Rewritten are here-documents, ``--chmod`` and ``--link`` of COPY and ADD, ``--mount``
of RUN, and the arguments that name the platform.  A cache begins empty and its content stays in the image; a secret is
not there, as in any build to which nobody gives one.  Source: docs.docker.com/reference/dockerfile; BuildKit's
frontend/dockerfile (here-documents of RUN).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from sandbox.tasks.container_files.dockerfile import (
    DockerfileStatement,
    Heredoc,
    copies_path,
    escape_character,
    parse_environment,
    read_statements,
)
from sandbox.tasks.task import ImageBuild

_ADDED = ".longshore-build"
"""Folder of added files in the context."""
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?\s+")
_WORDS = TypeAdapter(list[str])
_SHEBANG = """f=$(mktemp) && cat > $f <<'{name}' && chmod +x $f && $f; s=$?; rm -f $f; exit $s\n{text}{name}\n"""
_VARIABLE = re.compile(
    r"\\.|\$(?:(?P<bare>[A-Za-z_]\w*|[0-9@*#?$!-])|\{(?P<name>\w+)(?::?(?P<sign>[-+?])(?P<text>[^}]*))?\})", re.DOTALL
)
"""A variable in a here-document whose word is not quoted is replaced, unless a backslash is before it."""


class UnsupportedSyntaxError(Exception):
    """A part of a Dockerfile cannot be rewritten; the message names it."""


class ClassicBuild(NamedTuple):
    """A build for an engine's own builder."""

    build: ImageBuild
    modes: Mapping[str, int]
    """Permissions of files of the context, by path; other files are as in any context."""


@dataclass(slots=True)
class _Stage:
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    user: str = ""
    """User of the stage's later instructions; empty if the file does not say."""
    variables: dict[str, str] = field(default_factory=dict[str, str])

    def expand(self, text: str) -> str:
        """Replace variables; unknown ones, which the base image may set, by nothing."""

        def value(found: re.Match[str]) -> str:
            if not (name := found["bare"] or found["name"]):
                return found[0]
            known = self.variables.get(name, "")
            match found["sign"]:
                case "-":
                    return known or found["text"]
                case "+":
                    return found["text"] if known else ""
                case _:
                    return known

        return _VARIABLE.sub(value, text)


def to_classic(build: ImageBuild, architecture: str) -> ClassicBuild:
    """Return the build without BuildKit's syntax; the same one if it has none.

    ``architecture`` is Docker's name of the machine's: ``amd64``, ``arm64``.  Raises UnsupportedSyntaxError.
    """
    text = build.files.get(build.dockerfile, b"").decode(errors="surrogateescape")
    rewriter = _Rewriter(build, architecture)
    lines = [line for statement in read_statements(text) for line in rewriter.rewrite(statement)]
    if not rewriter.changed:
        return ClassicBuild(build, {})
    head = ["# escape=`"] if escape_character(text) == "`" else []
    content = "".join(f"{line}\n" for line in (*head, *lines)).encode(errors="surrogateescape")
    files = {**build.files, **rewriter.added, build.dockerfile: content}
    return ClassicBuild(replace(build, files=files), rewriter.modes)


class _Rewriter:
    def __init__(self, build: ImageBuild, architecture: str) -> None:
        self._build = build
        platform = {"PLATFORM": f"linux/{architecture}", "OS": "linux", "ARCH": architecture, "VARIANT": ""}
        self._platform = {f"{side}{name}": value for side in ("BUILD", "TARGET") for name, value in platform.items()}
        self._stages: dict[str, _Stage] = {}
        self._before_first = self._now = _Stage(variables=dict(self._platform))
        self.added: dict[str, bytes] = {}
        self.modes: dict[str, int] = {}
        self.changed = False

    def rewrite(self, statement: DockerfileStatement) -> Sequence[str]:
        """Return the lines that stand for an instruction."""
        name, arguments = statement.instruction
        self._note(name, arguments)
        lines = None
        match name:
            case "FROM":
                lines = self._from(arguments)
            case "RUN":
                lines = self._run(arguments, statement.heredocs)
            case "COPY" | "ADD":
                lines = self._copy(name, arguments, statement.heredocs)
            case "ARG" if arguments in self._platform:
                lines = [f"ARG {arguments}={self._platform[arguments]}"]
            case _:
                pass
        if lines is None:
            return statement.lines
        self.changed = True
        return lines

    def _note(self, name: str, arguments: str) -> None:
        match name:
            case "SHELL":
                self._now.shell = tuple(_json_words(arguments)) or self._now.shell
            case "USER":
                self._now.user = arguments
            case "ENV":
                values = parse_environment(arguments)
                self._now.variables.update({key: self._now.expand(value) for key, value in values.items()})
            case "ARG":
                key, equals, value = arguments.partition("=")
                default = self._now.expand(value.strip("\"'")) if equals else self._before_first.variables.get(key, "")
                self._now.variables[key] = self._build.args.get(key, default)
            case _:
                pass

    def _from(self, arguments: str) -> list[str] | None:
        flags, rest = _flags(arguments)
        words = rest.split()
        before = self._stages.get(words[0].lower() if words else "", _Stage())
        self._now = _Stage(before.shell, before.user, dict(before.variables))
        self._stages[words[2].lower() if len(words) > 2 else str(len(self._stages))] = self._now
        platform = dict(flags).get("platform", "").strip('"').strip("${}")
        return [f"FROM {rest}"] if platform in self._platform else None

    # ---- RUN

    def _run(self, arguments: str, heredocs: Sequence[Heredoc]) -> list[str] | None:
        flags, command = _flags(arguments)
        if not flags and not heredocs:
            return None
        before: list[str] = []
        after: list[str] = []
        for name, value in flags:
            if name == "mount":
                self._mount(dict(_options(value)), before, after)
            elif (name, value) not in {("network", "default"), ("security", "sandbox")}:
                raise UnsupportedSyntaxError(f"RUN --{name}={value}")
        run = f"RUN {json.dumps([*self._now.shell, _script(command, heredocs)])}" if heredocs else f"RUN {command}"
        return [*self._as_root(before), run, *self._as_root(after)]

    def _mount(self, options: Mapping[str, str], before: list[str], after: list[str]) -> None:
        kind = options.get("type", "bind")
        target = _first(options, "target", "dst", "destination")
        if kind in {"cache", "tmpfs"} and target:
            before.append(f"RUN mkdir -p {target}")
            if owner := ":".join(options[key] for key in ("uid", "gid") if key in options):
                before.append(f"RUN chown {owner} {target}")
        elif kind == "bind" and posixpath.normpath(target or ".") != ".":
            stage = f"--from={options['from']} " if "from" in options else ""
            source = _first(options, "source", "src") or ("/" if stage else ".")
            exists = f"echo '{target} is in the image already: a bind mount there cannot be rewritten' >&2; exit 1"
            before += [f"RUN [ ! -e {target} ] || {{ {exists}; }}", f"COPY {stage}{source} {target}"]
            after.append(f"RUN rm -rf {target}")
        elif kind not in {"secret", "ssh"} or options.get("required", "false") != "false":
            shown = ",".join(f"{key}={value}" for key, value in options.items())
            raise UnsupportedSyntaxError(f"RUN --mount={shown}")

    def _as_root(self, lines: Sequence[str]) -> list[str]:
        return ["USER 0:0", *lines, f"USER {self._now.user}"] if lines and self._now.user else [*lines]

    # ---- COPY and ADD

    def _copy(self, name: str, arguments: str, heredocs: Sequence[Heredoc]) -> list[str] | None:
        flags, rest = _flags(arguments)
        kept = [(flag, value) for flag, value in flags if flag in {"from", "chown"}]
        mode = dict(flags).get("chmod", "")
        if unknown := [flag for flag, _ in flags if flag not in {"from", "chown", "chmod", "link"}]:
            raise UnsupportedSyntaxError(f"{name} --{unknown[0]}")
        if len(kept) == len(flags) and not heredocs:
            return None
        *sources, target = _json_words(rest) or rest.split()
        chmod: list[str] = []
        if heredocs:
            sources = list(self._heredoc_files(sources, heredocs))
        if mode and not re.fullmatch(r"[0-7]{3,4}", mode):
            raise UnsupportedSyntaxError(f"{name} --chmod={mode}")
        if mode and "from" in dict(flags):
            files = [f"{target}/{posixpath.basename(source)}" for source in sources]
            chmod = [f"RUN if [ -d {target} ]; then chmod {mode} {' '.join(files)}; else chmod {mode} {target}; fi"]
        elif mode:
            sources = [self._with_mode(source, int(mode, 8)) for source in sources]
        words = "".join(f"--{flag}={value} " for flag, value in kept)
        return [f"{name} {words}{json.dumps([*sources, target])}", *self._as_root(chmod)]

    def _heredoc_files(self, sources: Sequence[str], heredocs: Sequence[Heredoc]) -> Iterator[str]:
        """Yield the sources with the path of a file for each here-document."""
        left = iter(heredocs)
        for source in sources:
            if source.startswith("<<") and (heredoc := next(left, None)):
                text = self._now.expand(heredoc.text) if heredoc.expands else heredoc.text
                yield self._add(heredoc.name, text.encode(errors="surrogateescape"))
            else:
                yield source

    def _with_mode(self, source: str, mode: int) -> str:
        """Return the path of a copy of a source of the context whose files have a mode."""
        if source in self.added:
            self.modes[source] = mode
            return source
        clean = posixpath.normpath(source.lstrip("/") or ".")
        taken = {path: data for path, data in self._build.files.items() if clean == "." or copies_path(clean, path)}
        if not taken or "$" in source:
            raise UnsupportedSyntaxError(f"--chmod of {source}")
        folder = self._new_folder()
        for path, data in taken.items():
            self.added[f"{folder}/{path}"] = data
            self.modes[f"{folder}/{path}"] = mode
        return folder if clean == "." else f"{folder}/{clean}"

    def _add(self, name: str, data: bytes) -> str:
        path = f"{self._new_folder()}/{name}"
        self.added[path] = data
        return path

    def _new_folder(self) -> str:
        return f"{_ADDED}/{len(self.added)}"


def _script(command: str, heredocs: Sequence[Heredoc]) -> str:
    """Return what the shell runs for a RUN with here-documents, as BuildKit does."""
    if len(command.split()) > 1 or not command.startswith("<<"):
        return command + "".join(f"\n{each.text}{each.name}" for each in heredocs)
    text = heredocs[0].text
    return _SHEBANG.format(name=heredocs[0].name, text=text) if text.startswith("#!") else text


def _flags(arguments: str) -> tuple[list[tuple[str, str]], str]:
    """Return the flags at the beginning of an instruction's arguments, and the rest."""
    flags: list[tuple[str, str]] = []
    while found := _FLAG.match(arguments):
        flags.append((found[1], found[2] or ""))
        arguments = arguments[found.end() :]
    return flags, arguments


def _options(value: str) -> Iterator[tuple[str, str]]:
    for option in value.strip("\"'").split(","):
        key, _, text = option.partition("=")
        yield key.lower(), text or "true"


def _first(options: Mapping[str, str], *names: str) -> str:
    return next((options[name] for name in names if name in options), "")


def _json_words(text: str) -> list[str]:
    """Return the words of a JSON list of texts; empty if it is none."""
    try:
        return _WORDS.validate_json(text)
    except ValidationError:
        return []
