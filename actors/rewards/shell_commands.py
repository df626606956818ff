"""Classification of shell commands by patterns, for the process rules.  Pure.

A command is split into simple commands without here-documents, comments and quoted syntax, so ``grep "a > b"`` writes
nothing.  This is not a shell parser: it decides only small rewards.
Each pattern takes time linear in its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from actors.agents.bash_block import SUBMIT

MAX_COMMAND_CHARS = 16 << 10
"""Characters of one command that are read; the rest is ignored."""

_HERE = re.compile(r"<<-?\s*['\"]?([A-Za-z_]\w*)")
_QUOTED = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)", re.DOTALL)
_META = re.compile(r"[;&|\n()<>#]")
_COMMENT = re.compile(r"(?:^|(?<=[\s;]))#[^\n]*")
_BETWEEN = re.compile(r"[;&|\n()]+")
_ASSIGNMENT = re.compile(r"\w+=\S*")
_WRITES = re.compile(r"(?<![\d&<>=-])>{1,2}\|?\s*([^\s<>]+)")
_WRAPPERS = {"sudo", "time", "env", "nice", "nohup", "command", "exec", "stdbuf"}
_RUNS = {"uv", "poetry", "pipenv", "hatch", "bundle", "npx"}
"""Programs that run another one, after ``run`` or ``exec`` or directly."""

_RUNNERS = {"pytest", "py.test", "tox", "nox", "ctest", "jest", "vitest", "mocha", "rspec", "phpunit", "prove"}
_MODULES = {"pytest", "unittest", "nose2", "doctest"}
_TARGETS = {
    "go": {"test"},
    "cargo": {"test", "nextest"},
    "npm": {"test", "t"},
    "yarn": {"test"},
    "pnpm": {"test"},
    "make": {"test", "tests", "check"},
    "mvn": {"test", "verify"},
    "gradle": {"test", "check"},
    "gradlew": {"test", "check"},
    "dotnet": {"test"},
    "mix": {"test"},
    "swift": {"test"},
    "bazel": {"test"},
}
_RUN_TESTS = re.compile(r"(?:.*/)?run[-_]?tests?(?:\.(?:sh|py))?")
_LOOKS = {"ls", "find", "tree", "cat", "head", "tail", "less", "nl", "wc", "sed", "grep", "rg", "git"}
_SEARCHES = {"grep", "rg"}
"""Their first operand is a pattern."""
_TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?)/|/(?:tests?|__tests__|specs?)$|(?:^|/)test_[\w*?.-]+|[\w*?]_tests?\.\w+$|"
    r"\.(?:test|spec)\.[jt]sx?$|[A-Za-z]Tests?\.(?:java|kt|cs)$"
)
_TEST_FOLDERS = {"test", "tests", "__tests__", "spec"}
_LISTS = {"ls", "find", "tree"}

_NO_CODE = re.compile(r"/(?:dev|tmp|proc|var)/.*|.*\.(?:log|out|err|txt)|&?\d|-")
_IN_PLACE = re.compile(r"-(?=\w*i)\S*|--in-place(?:=\S*)?")
_PYTHON = re.compile(r"python[\d.]*")
_PYTHON_WRITES = re.compile(r"\.write_(?:text|bytes)\(|\bopen\([^)\n]{0,200}['\"][wax]b?\+?['\"]")
_IDLE = {":", "true", "echo", "printf", "sleep"}


def _without_here_documents(command: str) -> str:
    kept: list[str] = []
    until = ""
    for line in command[:MAX_COMMAND_CHARS].split("\n"):
        if until:
            until = "" if line.strip() == until else until
            continue
        kept.append(line)
        if found := _HERE.search(line):
            until = found[1]
    return "\n".join(kept)


def _plain(command: str) -> str:
    """Remove here-documents, comments and quotes, and syntax inside quotes."""

    def unquoted(found: re.Match[str]) -> str:
        return _META.sub(" ", next(each for each in found.groups() if each is not None))

    return _COMMENT.sub("", _QUOTED.sub(unquoted, _without_here_documents(command)))


def _simple(plain: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, the program first; variable assignments and wrappers are skipped."""
    for part in _BETWEEN.split(plain):
        words = part.split()
        at = 0
        while at < len(words) and (
            _ASSIGNMENT.fullmatch(words[at]) or words[at] in _WRAPPERS or words[at] == "timeout"
        ):
            at += 2 if words[at] == "timeout" else 1
        if at + 1 < len(words) and words[at] in _RUNS:
            at += 2 if words[at + 1] in {"run", "exec"} else 1
        if at < len(words):
            yield [words[at].rpartition("/")[2] or words[at], *words[at + 1 :]]


def is_idle(command: str) -> bool:
    """Return whether a command has no effect: empty, a comment, or only printing or waiting.  Submitting is not
    idle."""
    plain = _plain(command)
    return SUBMIT not in plain and not _WRITES.search(plain) and all(words[0] in _IDLE for words in _simple(plain))


def modifies_code(command: str) -> bool:
    """Return whether a command writes a file that is neither a log nor temporary: by redirection, ``tee``, ``sed -i``,
    ``patch``, ``git apply``, or Python."""
    plain = _plain(command)
    if any(not _NO_CODE.fullmatch(target) for target in _WRITES.findall(plain)):
        return True
    return any(_writes(words, command) for words in _simple(plain))


def _writes(words: Sequence[str], command: str) -> bool:
    program, arguments = words[0], words[1:]
    match program:
        case "sed" | "perl":
            return any(_IN_PLACE.fullmatch(each) for each in arguments)
        case "tee":
            return any(not each.startswith("-") and not _NO_CODE.fullmatch(each) for each in arguments)
        case "patch" | "apply_patch":
            return "--dry-run" not in arguments
        case "git":
            return bool({"apply", "am"} & set(arguments[:1])) and not {"--check", "--stat"} & set(arguments)
        case _:
            return bool(_PYTHON.fullmatch(program) and _PYTHON_WRITES.search(command[:MAX_COMMAND_CHARS]))


def touches_tests(command: str) -> bool:
    """Return whether a command runs or reads tests."""
    return any(_runs_tests(words) or _looks_at_tests(words) for words in _simple(_plain(command)))


def _runs_tests(words: Sequence[str]) -> bool:
    program, arguments = words[0], [each for each in words[1:] if not each.startswith("-")]
    first = arguments[0] if arguments else ""
    if program in _RUNNERS or _RUN_TESTS.fullmatch(program):
        return True
    if _PYTHON.fullmatch(program):
        return ("-m" in words and first in _MODULES) or (first.endswith("manage.py") and arguments[1:2] == ["test"])
    if program in {"sh", "bash"}:
        return bool(_RUN_TESTS.fullmatch(first))
    if first == "run":
        first = arguments[1] if len(arguments) > 1 else ""
    return first in _TARGETS.get(program, ())


def _looks_at_tests(words: Sequence[str]) -> bool:
    program, arguments = words[0], [each for each in words[1:] if not each.startswith("-")]
    if program not in _LOOKS:
        return False
    if program in _SEARCHES:
        arguments = arguments[1:]
    named = program in _LISTS and not _TEST_FOLDERS.isdisjoint(arguments)
    return named or any(_TEST_PATH.search(each) for each in arguments)
