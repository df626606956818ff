"""Rewrites what only BuildKit understands in a Dockerfile into what every engine's own builder knows.  Pure.

Images are built by the engine's own builder, because only its RUN steps can have the network of a container, such as
that of the pool's egress proxy.  Rewritten are here-documents, ``--chmod`` and ``--link`` of COPY and ADD, ``--mount``
of RUN, and the arguments that name the platform.  The place of several files is a folder, whether a ``/`` says so or
not.  A cache begins empty and its content stays in the image; a secret is not there, as in any build to which nobody
gives one.

An ADD is written with paths that no engine takes for a URL; a URL, which the engine would fetch from its own network,
becomes a file of the context that somebody else has fetched.  In a file with an ADD every instruction is written in one
line, so that the engine finds no other instructions than this module.  What the file sets by ARG is taken for its
value, although a base image's environment may have another.

Source: docs.docker.com/reference/dockerfile; BuildKit's frontend/dockerfile (here-documents of RUN).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from sandbox.tasks.container_files.add_sources import (
    AddedSources,
    UnsupportedSyntaxError,
    decide_sources,
    find_archive,
    is_clear,
)
from sandbox.tasks.container_files.added_files import AddedFiles
from sandbox.tasks.container_files.dockerfile import (
    DockerfileStatement,
    Heredoc,
    copies_path,
    escape_character,
    expand_known,
    find_foreign_frontend,
    parse_arguments,
    parse_environment,
    read_statements,
)
from sandbox.tasks.container_files.variables import LongValueError
from sandbox.tasks.task_containers import ImageBuild

_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?\s+")
_INSTRUCTION = re.compile(
    "ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|RUN|SHELL|STOPSIGNAL|USER|VOLUME|"
    "WORKDIR"
)
"""A line that begins with another word may be the rest of one that only the engine goes on with."""
_NO_FILE_TO_PODMAN = re.compile(r"\s*\[.*|null|https?://.*|.*\.in", re.DOTALL)
"""Names of a Dockerfile that Podman reads as a list of names, an address, or a text that cpp is to rewrite."""
_HAS_ADD = re.compile(r"\bADD\b", re.IGNORECASE)
_QUOTE = re.compile(r"""["'\\`]""")
_WILDCARD = re.compile(r"[*?[]")
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_INHERITED = 100_000
"""Maximum number of variables that the stages of a file inherit, all of them together."""
_SHOWN = 100
"""Maximum characters of an instruction that are shown where its value is too long."""
_WORDS = TypeAdapter(list[str])
_SHEBANG = """f=$(mktemp) && cat > $f <<'{name}' && chmod +x $f && $f; s=$?; rm -f $f; exit $s\n{text}{name}\n"""
_VARIABLE = re.compile(
    r"\\.|\$(?:(?P<bare>[A-Za-z_]\w*|[0-9@*#?$!-])|\{(?P<name>\w+)(?::?(?P<sign>[-+?])(?P<text>[^}]*))?\})"
    r"|\$\{\w+:?[-+?][^}]*+\Z",
    re.DOTALL,
)
"""A variable in a here-document whose word is not quoted is replaced, unless a backslash is before it; one without its
end takes all text that follows."""


class ClassicBuild(NamedTuple):
    """A build for an engine's own builder."""

    build: ImageBuild
    modes: Mapping[str, int]
    """Permissions of files and folders of the context, by path; others are as in any context."""
    unfetched: tuple[str, ...] = ()
    """URLs of ADD without content: their files are empty in this build."""


@dataclass(slots=True)
class _Stage:
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    user: str = ""
    """User of the stage's later instructions; empty if the file does not say."""
    env: dict[str, str | None] = field(default_factory=dict[str, str | None])
    args: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """None: only the engine knows the value."""

    variables: dict[str, str] = field(default_factory=dict[str, str])
    """The variables whose value is known: ENV comes before ARG."""

    def set_env(self, key: str, value: str | None) -> None:
        self.env[key] = value
        self._note(key, value)

    def set_arg(self, key: str, value: str | None) -> None:
        self.args[key] = value
        if key not in self.env:
            self._note(key, value)

    def _note(self, key: str, value: str | None) -> None:
        if value is None:
            self.variables.pop(key, None)
        else:
            self.variables[key] = value

    def expand(self, text: str) -> str:
        """Replace variables; unknown ones, which the base image may set, by nothing."""

        variables = self.variables

        def value(found: re.Match[str]) -> str:
            if not (name := found["bare"] or found["name"]):
                return found[0]
            known = variables.get(name, "")
            match found["sign"]:
                case "-":
                    return known or found["text"]
                case "+":
                    return found["text"] if known else ""
                case _:
                    return known

        return _VARIABLE.sub(value, text)


def to_classic(build: ImageBuild, architecture: str, fetched: Mapping[str, bytes] | None = None) -> ClassicBuild:
    """Return the build without BuildKit's syntax; the same one if it has none.

    ``architecture`` is Docker's name of the machine's: ``amd64``, ``arm64``; ``fetched``: contents by URL.  Raises
    UnsupportedSyntaxError.
    """
    if _NO_FILE_TO_PODMAN.fullmatch(build.dockerfile):
        why = "some engines read another file than this: rename it, for example to Dockerfile"
        raise UnsupportedSyntaxError(f"the name {build.dockerfile!r} of the Dockerfile", why)
    text = build.files.get(build.dockerfile, b"").decode(errors="surrogateescape")
    if frontend := find_foreign_frontend(text, build.args):
        why = "only Docker's own frontend (docker/dockerfile) is followed, and another may read the file in another way"
        raise UnsupportedSyntaxError(f"the frontend {frontend[:_SHOWN]}", why)
    rewriter = _Rewriter(build, architecture, fetched or {})
    lines = [line for statement in read_statements(text) for line in rewriter.rewrite(statement)]
    if not rewriter.changed and not _HAS_ADD.search(text):
        return ClassicBuild(build, {})
    head = ["# escape=`"] if escape_character(text) == "`" else []
    content = "".join(f"{line}\n" for line in (*head, *lines))
    added, dockerfile = rewriter.added, {build.dockerfile: content.encode(errors="surrogateescape")}
    files = {**build.files, **added.files, **dockerfile}
    rewritten = replace(build, files=files, modified_s={**build.modified_s, **added.modified_s})
    return ClassicBuild(rewritten, added.modes, tuple(added.unfetched))


class _Rewriter:
    def __init__(self, build: ImageBuild, architecture: str, fetched: Mapping[str, bytes]) -> None:
        self._build = build
        platform = {"PLATFORM": f"linux/{architecture}", "OS": "linux", "ARCH": architecture, "VARIANT": ""}
        self._platform = {f"{side}{name}": value for side in ("BUILD", "TARGET") for name, value in platform.items()}
        self._stages: dict[str, _Stage] = {}
        self._inherited = 0
        self._before_first = self._now = _Stage(args=dict(self._platform), variables=dict(self._platform))
        self.added = AddedFiles(build, fetched)
        self._has_archive = cache(lambda: find_archive(build.files.values()))
        self.changed = False

    def rewrite(self, statement: DockerfileStatement) -> Sequence[str]:
        """Return the lines that stand for an instruction."""
        name, arguments = statement.instruction
        try:
            self._note(name, arguments)
        except LongValueError as error:
            raise UnsupportedSyntaxError(f"{name} {arguments[:_SHOWN]}", str(error)) from error
        lines = None
        match name:
            case "FROM":
                lines = self._from(arguments)
            case "RUN":
                lines = self._run(arguments, statement.heredocs)
            case "COPY" | "ADD":
                lines = self._copy(name, arguments, statement.heredocs)
            case "ONBUILD" if arguments[:3].upper() == "ADD" and not is_clear(arguments):
                why = "the engine may take it for a URL: name a file of the context, without variables and quotes"
                raise UnsupportedSyntaxError(f"ONBUILD {arguments}", why)
            case "ARG" if arguments in self._platform:
                lines = [f"ARG {arguments}={self._platform[arguments]}"]
            case _:
                pass
        if lines is None:
            self.changed |= not _INSTRUCTION.fullmatch(name)
            return [statement.line]
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
                known = {key: expand_known(value, self._now.variables) for key, value in values.items()}
                for key, value in known.items():
                    self._now.set_env(key, value)
            case "ARG":
                for key, value in parse_arguments(arguments).items():
                    outer = self._before_first.args.get(key)
                    default = outer if value is None else expand_known(value, self._now.variables)
                    self._now.set_arg(key, self._build.args.get(key, default))
            case _:
                pass

    def _from(self, arguments: str) -> list[str] | None:
        flags, rest = _flags(arguments)
        words = rest.split()
        before = self._stages.get(words[0].lower() if words else "", _Stage())
        self._inherited += len(before.env)
        if self._inherited > _MOST_INHERITED:
            raise UnsupportedSyntaxError(f"FROM {rest}", f"its stages inherit more than {_MOST_INHERITED} variables")
        known = {key: value for key, value in before.env.items() if value is not None}
        self._now = _Stage(before.shell, before.user, dict(before.env), variables=known)
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
        known = {"from", "chown", "chmod", "link", *(["checksum"] if name == "ADD" else [])}
        if unknown := [flag for flag, _ in flags if flag not in known]:
            raise UnsupportedSyntaxError(f"{name} --{unknown[0]}")
        clear = name == "COPY" or is_clear(arguments)
        words = (_json_words(rest) or rest.split()) if clear else _added_words(flags, rest)
        into_folder = (
            len(words) > 1
            and not words[-1].endswith("/")
            and _are_options_read(arguments, rest)
            and self._is_folder(words, dict(flags))
        )
        if len(words) < 2 or (clear and len(kept) == len(flags) and not heredocs and not into_folder):
            return None
        target = words.pop() + "/" * into_folder
        decided = AddedSources(name, tuple(words), ())
        if not clear:
            decided = decide_sources(words, self._now.variables, self._has_archive)
        sources, options = list(decided.paths), dict(flags)
        if "checksum" in options and (sources or not _CHECKSUM.fullmatch(options["checksum"])):
            raise UnsupportedSyntaxError(f"ADD --checksum={options['checksum']}", "it is not the SHA-256 of a URL")
        mode = options.get("chmod", "")
        chmod: list[str] = []
        if heredocs:
            sources = list(self._heredoc_files(sources, heredocs))
        if mode and not re.fullmatch(r"[0-7]{3,4}", mode):
            raise UnsupportedSyntaxError(f"{name} --chmod={mode}")
        if mode and "from" in options:
            files = [f"{target}/{posixpath.basename(source)}" for source in sources]
            chmod = [f"RUN if [ -d {target} ]; then chmod {mode} {' '.join(files)}; else chmod {mode} {target}; fi"]
        elif mode:
            sources = [self.added.add_with_mode(source, int(mode, 8)) for source in sources]
        shown = "".join(f"--{flag}={value} " for flag, value in kept)
        fetched = [self.added.add_url(url, target, options) for url in decided.urls]
        groups = ((decided.verb, sources), ("COPY", fetched))  # ADD unpacks an archive, but not one that it fetched
        copies = [f"{verb} {shown}{json.dumps([*those, target])}" for verb, those in groups if those]
        return [*copies, *self._as_root(chmod)]

    def _is_folder(self, words: Sequence[str], options: Mapping[str, str]) -> bool:
        """Return whether the last word must be a folder: for several sources, or one that may match several files."""
        if len(words) > 2:
            return True
        pattern = (expand_known(words[0], self._now.variables) or "").lstrip("/")
        if "from" in options:
            return bool(_WILDCARD.search(pattern)) and posixpath.basename(words[1]) in {".", ".."}
        depth = pattern.count("/") + 1
        tops = {tuple(path.split("/")[:depth]) for path in self._build.files if copies_path(pattern, path)}
        return len(tops) > 1

    def _heredoc_files(self, sources: Sequence[str], heredocs: Sequence[Heredoc]) -> Iterator[str]:
        """Yield the sources with the path of a file for each here-document."""
        left = iter(heredocs)
        for source in sources:
            if source.startswith("<<") and (heredoc := next(left, None)):
                text = self._now.expand(heredoc.text) if heredoc.expands else heredoc.text
                yield self.added.add(heredoc.name, text.encode(errors="surrogateescape"))
            else:
                yield source


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


def _are_options_read(arguments: str, rest: str) -> bool:
    """Return whether no engine takes more of the arguments, or less, for options than what is before ``rest``."""
    options = arguments[: len(arguments) - len(rest)]
    return rest[:1].isprintable() and not rest.startswith("-") and not _QUOTE.search(options)


def _added_words(flags: Sequence[tuple[str, str]], rest: str) -> list[str]:
    """Return the words of an ADD that is not clear.  Raises UnsupportedSyntaxError."""
    words = _json_words(rest)
    values = "".join(value for _, value in flags)
    if not rest.isascii() and any("\ud800" <= character <= "\udfff" for character in rest):
        raise UnsupportedSyntaxError(f"ADD {rest!a}", "it is not UTF-8")
    if _QUOTE.search(values) or (rest.startswith("[") and not words):
        raise UnsupportedSyntaxError(f"ADD {rest}", "its options or its JSON cannot be read")
    words = words or rest.split()
    if len(words) < 2:
        raise UnsupportedSyntaxError(f"ADD {rest}", "it needs a source and a target")
    return words


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
