"""Decides what the toolchain answers when a test script calls a package tool, uv, pytest, rewardkit or Python. Pure.

One rule for three users: the shims at grading (:mod:`~sandbox.toolchain.in_container.shim`), the list of a task's
network needs (:mod:`sandbox.validation.network_needs`), and the decision whose programs run the tests
(:mod:`sandbox.grading.isolation.decision`).  A copy runs in containers: only the standard library and ``pins`` are
imported.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sandbox.toolchain.in_container.pins import APT_PACKAGES, INSTALLERS, PYTHON, UV, WHEELS


class ShimNothingToDo(NamedTuple):
    """The requested package or program is already there."""


class ShimInstaller(NamedTuple):
    """The call fetches uv's installer, whose work is already done."""

    into: str
    """File to which the script writes it; empty for standard output."""


class ShimVenv(NamedTuple):
    """The call creates a virtual environment at this path, with the toolchain's packages."""

    path: str


class ShimRun(NamedTuple):
    """The call runs this command with the toolchain's Python and packages first on PATH."""

    command: tuple[str, ...]


class ShimTests(NamedTuple):
    """The call runs tests by the toolchain's pytest or rewardkit; they start the image's programs."""

    program: str
    arguments: tuple[str, ...]


class ShimMissing(NamedTuple):
    """The call needs these packages, which are not in the toolchain."""

    names: tuple[str, ...]


class ShimPassThrough(NamedTuple):
    """The real program must answer the call."""


ShimAction = ShimNothingToDo | ShimInstaller | ShimVenv | ShimRun | ShimTests | ShimMissing | ShimPassThrough

UV_TOOLS = ("uv", "uvx")
APT_TOOLS = ("apt-get", "apt")
FETCHERS = ("curl", "wget")
PYTEST, REWARDKIT = "pytest", "rewardkit"
SHIMMED_PROGRAMS = (*UV_TOOLS, *APT_TOOLS, *FETCHERS, REWARDKIT)
"""Programs that have a shim."""
PLAIN_PROGRAMS = ("pytest", "py.test", "python", "python3", "pip", "pip3")
"""Programs of the image that have a shim in scripts whose tests the toolchain's pytest can run."""

_FLAGS = frozenset((
    "-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "-U", "--upgrade", "--no-progress", "--offline",
    "--no-project", "--no-config", "--isolated", "--active", "--frozen", "--no-sync", "--bare", "--no-readme",
    "--no-workspace", "--seed", "--clear", "--dev", "--managed-python",
))  # fmt: skip
"""Options of uv that do not change the toolchain's answer."""
_PIP_FLAGS = frozenset((
    "-q", "--quiet", "-qq", "-U", "--upgrade", "--user", "--no-cache-dir", "--no-input", "--break-system-packages",
    "--disable-pip-version-check", "--root-user-action=ignore", "--no-warn-script-location",
))  # fmt: skip
_VALUED = {"-p": "python", "--python": "python", "-w": "with", "--with": "with", "--from": "with", "--prompt": "name"}
_PYTHONS = frozenset((PYTHON, PYTHON.split(".", maxsplit=1)[0], f"python{PYTHON}", "python3", "python"))
_VERSION = re.compile(r"(?:python|cpython@)?3\.(\d+)(?:\.\d+)?")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?P<extras>\[[^\]]*\])?\s*(?P<at>@?)(?P<versions>(?s:.*))")
_TARGET = {
    "curl": re.compile(r"(?:-[a-zA-Z]*o|--output=?)(.*)"),
    "wget": re.compile(r"(?:-[a-zA-Z]*O|--output-document=?)(.*)"),
}
_REMOTE_NAME = re.compile(r"-[a-zA-Z]*O|--remote-name")
_BOUND = re.compile(r"\s*(==|>=|<=|!=|>|<)\s*(\d+(?:\.\d+)*)\s*")


def decide_shim_action(program: str, arguments: Sequence[str]) -> ShimAction:
    """Decide one call of one of SHIMMED_PROGRAMS or PLAIN_PROGRAMS."""
    if program == REWARDKIT:
        return ShimTests(REWARDKIT, tuple(arguments))
    if program in PLAIN_PROGRAMS:
        return _plain(program, arguments)
    if program in APT_TOOLS:
        return _apt(arguments)
    if program in FETCHERS:
        return _fetch(program, arguments)
    return _uv(program, arguments)


def is_installer(url: str) -> bool:
    return any(fnmatch.fnmatchcase(url, pattern) for pattern in INSTALLERS)


def runs_on_newer_python(version: str) -> bool:
    """Return whether what asks for this older version of Python runs on the toolchain's."""
    found = _VERSION.fullmatch(version)
    return found is not None and int(found[1]) < int(PYTHON.partition(".")[2])


def has_debian_package(name: str) -> bool:
    return name.partition("=")[0] in APT_PACKAGES


def is_rewardkit(requirement: str) -> bool:
    """Return whether a word of a command names the package of rewardkit."""
    return requirement.startswith("harbor-rewardkit")


def has_python_package(requirement: str) -> bool:
    """Return whether the toolchain has this Python package in a version that meets the requirement."""
    found = _REQUIREMENT.fullmatch(requirement.strip())
    if found is None:
        return False
    name = re.sub(r"[-_.]+", "-", found[1]).lower()
    pinned = {**WHEELS, "uv": UV}.get(name)
    if pinned is None or (found["extras"] and name != "pytest"):  # those of pytest are for its own development
        return False
    if found["at"]:
        return found["versions"].strip() in (pinned, "latest")
    return all(_meets(pinned, bound) for bound in found["versions"].split(",") if bound.strip())


def _meets(version: str, bound: str) -> bool:
    found = _BOUND.fullmatch(bound)
    if found is None:
        return False
    have, want = (tuple(int(part) for part in text.split(".")) for text in (version, found[2]))
    length = max(len(have), len(want))
    have, want = (each + (0,) * (length - len(each)) for each in (have, want))
    holds = {"==": have == want, "!=": have != want, ">=": have >= want, "<=": have <= want}
    return {**holds, ">": have > want, "<": have < want}[found[1]]


def _apt(arguments: Sequence[str]) -> ShimAction:
    words = [each for each in arguments if not each.startswith("-")]
    match words:
        case ["update" | "clean" | "autoclean" | "autoremove"]:
            return ShimNothingToDo()
        case ["install", *names]:
            missing = tuple(name.partition("=")[0] for name in names if not has_debian_package(name))
            return ShimMissing(missing) if missing else ShimNothingToDo()
        case _:
            return ShimPassThrough()


def _plain(program: str, arguments: Sequence[str]) -> ShimAction:
    match [program.rstrip("3"), *arguments]:
        case ["pytest" | "py.test", *rest] | ["python", "-m", "pytest", *rest]:
            return ShimTests(PYTEST, tuple(rest))
        case ["python", "-m", "rewardkit", *rest]:
            return ShimTests(REWARDKIT, tuple(rest))
        case ["pip", "install", *rest] | ["python", "-m", "pip", "install", *rest]:
            names = [word for word in rest if word not in _PIP_FLAGS]
            return ShimNothingToDo() if names and all(map(has_python_package, names)) else ShimPassThrough()
        case _:
            return ShimPassThrough()


def _fetch(program: str, arguments: Sequence[str]) -> ShimAction:
    return ShimInstaller(_target(program, arguments)) if any(map(is_installer, arguments)) else ShimPassThrough()


def _target(program: str, arguments: Sequence[str]) -> str:
    """Return the file that curl or wget would write; empty for standard output."""
    named = _TARGET[program]
    for word, value in zip(arguments, (*arguments[1:], ""), strict=True):
        if program == "curl" and _REMOTE_NAME.fullmatch(word):
            return "install.sh"
        if found := named.fullmatch(word):
            into = found[1] or value
            return "" if into == "-" else into
    return "" if program == "curl" else "install.sh"


def _uv(program: str, arguments: Sequence[str]) -> ShimAction:
    match [program, *arguments]:
        case ["uvx", *rest] | ["uv", "tool", "run", *rest]:
            return _run(rest, tool=True)
        case ["uv", "run", *rest]:
            return _run(rest, tool=False)
        case ["uv", "pip", "install", *rest] | ["uv", "add", *rest]:
            return _install(rest)
        case ["uv", "tool", "install", *rest] if any(map(is_rewardkit, rest)):
            return _install(rest)
        case ["uv", "init", *rest]:
            call = _read(rest)
            return ShimPassThrough() if call is None or call.rest else ShimNothingToDo()
        case ["uv", "venv", *rest]:
            call = _read(rest)
            return ShimPassThrough() if call is None or len(call.rest) > 1 else ShimVenv(*call.rest or (".venv",))
        case ["uv", "python", "install", *names] if _PYTHONS.issuperset(names):
            return ShimNothingToDo()
        case _:
            return ShimPassThrough()


def _install(arguments: Sequence[str]) -> ShimAction:
    call = _read(arguments)
    if call is None or not call.rest:
        return ShimPassThrough()
    return _missing_packages((*call.wanted, *call.rest)) or ShimNothingToDo()


def _run(arguments: Sequence[str], *, tool: bool) -> ShimAction:
    call = _read(arguments, to_command=True)
    if call is None or not call.rest:
        return ShimPassThrough()
    command, *rest = (REWARDKIT, *call.rest[3:]) if call.rest[:3] == ("python", "-m", REWARDKIT) else call.rest
    if tool:  # a tool is a package too
        if missing := _missing_packages((*call.wanted, *(() if call.source else (command,)))):
            return missing
        name = command.partition("@")[0]
        return ShimRun((name, *rest)) if name in (PYTEST, REWARDKIT) else ShimPassThrough()
    if missing := _missing_packages(call.wanted):
        return missing
    return ShimRun(("python", command, *rest) if command.endswith(".py") else (command, *rest))


def _missing_packages(requirements: Iterable[str]) -> ShimMissing | None:
    missing = tuple(each for each in requirements if not has_python_package(each))
    return ShimMissing(missing) if missing else None


class _UvCall(NamedTuple):
    wanted: tuple[str, ...]
    """Packages of ``--with`` and ``--from``."""
    source: bool
    """True if ``--from`` names the command's package."""
    rest: tuple[str, ...]


def _read(words: Sequence[str], *, to_command: bool = False) -> _UvCall | None:
    """Parse options of uv and the words after them; None if an option may change more than is known.

    ``to_command``: everything from the first other word on belongs to the command.
    """
    wanted: list[str] = []
    rest: list[str] = []
    source = False
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "-m" and to_command:
            return _UvCall(tuple(wanted), source, ("python", "-m", *left))
        if not word.startswith("-"):
            rest += (word, *left) if to_command else (word,)
        elif name in _VALUED:
            given = value if equals else next(left, "")
            if _VALUED[name] == "python" and not (given in _PYTHONS or (to_command and runs_on_newer_python(given))):
                return None
            if _VALUED[name] == "with":
                wanted += [each for each in given.split(",") if each]
            source = source or name == "--from"
        elif word not in _FLAGS:
            return None
    return _UvCall(tuple(wanted), source, tuple(rest))
