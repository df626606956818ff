"""What a task wants beyond its own container: the network, by phase, and services that live while it is graded.

Read from scripts, so a guess in both directions; ``validate --run`` is the proof.  What the verifier kit brings is no
need (:mod:`sandbox.kit.answers`): uv and its installer, pytest and its CTRF plugin, curl, wget and certificates.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sandbox.kit.answers import APT_TOOLS, has_deb, has_package, is_installer
from sandbox.tasks import dockerfile
from sandbox.tasks.task import ImageBuild, NetworkMode, Task


class Phase(StrEnum):
    BUILD = "build"
    SETUP = "setup"
    ORACLE = "oracle"
    """The solution wants it, so an agent probably does."""
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Need:
    phase: Phase
    what: str
    """The command or address, shortened."""


_PACKAGES = re.compile(
    r"\b(?P<tool>apt-get|apt|apk|dnf|yum|pip3?|uv|npm|pnpm|yarn|cargo|gem|go|conda)"
    r"(?:\s+(?:-\S+|pip|global))*\s+(?:install|add|get)\b(?P<names>[^\n;&|]*)"
)
_UVX = re.compile(r"\buvx\b(?P<names>[^\n;&|]*)")
_FETCH = re.compile(r"\b(?:curl|wget|git\s+clone)\b[^\n;&|]*?(?P<url>(?:https?|git|ssh)://[^\s\"'|;)]+)")
_URL = re.compile(r"https?://(?P<host>[\w.-]+)(?::\d+)?[^\s\"')]*")
_LOCAL = re.compile(r"\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0)(?::(\d{2,5}))?\b")
_VALUED = {"-p", "-c", "-r", "-i", "--python", "--index-url", "--extra-index-url", "-t", "--target"}
_PYTHON_TOOLS = ("pip", "pip3", "uv")
_VERSION = re.compile(r"[=<>~!\[@;]")
_SHOWN = 100


def network_needs(task: Task) -> tuple[Need, ...]:
    """What would be asked of the network, once each, by phase."""
    scripts: list[tuple[Phase, str]] = []
    for build in builds(task):
        text = build.files[build.dockerfile].decode(errors="replace")
        scripts += [(Phase.BUILD, rest) for name, rest in dockerfile.instructions(text) if name in {"RUN", "ADD"}]
    scripts += [(Phase.SETUP, task.setup), (Phase.ORACLE, task.solution), (Phase.VERIFY, task.run_tests)]
    scripts += [(Phase.VERIFY, _text(data)) for path, data in task.tests.items() if path.endswith(".sh")]
    needs = [Need(phase, what[:_SHOWN]) for phase, text in scripts for what in _wanted(text)]
    needs += [Need(Phase.VERIFY, what[:_SHOWN]) for what in _addresses(task)]
    return tuple(dict.fromkeys(needs))


def unmet(task: Task) -> tuple[Need, ...]:
    """The needs that the task's own network setting does not meet."""
    net = task.network
    modes = {Phase.BUILD: net.build, Phase.SETUP: net.agent, Phase.ORACLE: net.agent, Phase.VERIFY: net.verify}
    return tuple(need for need in network_needs(task) if modes[need.phase] is NetworkMode.NONE)


def live_services(task: Task) -> tuple[str, ...]:
    """What must be alive while the tests run: declared services, and local ports that the tests speak to."""
    spoken = [found for text in _test_texts(task) for found in _LOCAL.finditer(text)]
    ports = {f"localhost:{found[1]}" if found[1] else "localhost" for found in spoken}
    return (*(service.name for service in task.services), *sorted(ports))


def builds(task: Task) -> list[ImageBuild]:
    """Those of the agent's image and of its services', each with a Dockerfile."""
    every = (task.build, *(service.build for service in task.services))
    return [build for build in every if build is not None and build.dockerfile in build.files]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _test_texts(task: Task) -> list[str]:
    return [task.run_tests, *(_text(data) for path, data in task.tests.items() if path.endswith((".py", ".sh")))]


def _wanted(script: str) -> Iterator[str]:
    text = re.sub(r"\\\n\s*", " ", script)
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for found in _PACKAGES.finditer(text):
        if names := [_name(each) for each in _packages(found["names"]) if not _in_kit(found["tool"], each)]:
            yield f"{found['tool']} install {' '.join(names)}"
    for found in _UVX.finditer(text):
        if names := [_name(each) for each in _uvx_packages(found["names"].split()) if not has_package(each)]:
            yield f"uvx -w {' '.join(names)}"
    for found in _FETCH.finditer(text):
        if not is_installer(found["url"]) and not _LOCAL.search(found["url"]):
            yield found["url"]


def _in_kit(tool: str, package: str) -> bool:
    return has_deb(package) if tool in APT_TOOLS else tool in _PYTHON_TOOLS and has_package(package)


def _packages(words: str) -> Iterator[str]:
    """Packages among the words of an install command, as they are asked for."""
    skip = False
    for word in words.split():
        if skip or word.startswith("-"):
            skip = word in _VALUED
            continue
        package = word.strip("\"'")
        if _name(package) and not package.startswith((".", "/", "$")):
            yield package


def _name(package: str) -> str:
    """With the version where it is one that the kit has in another."""
    name = _VERSION.split(package, maxsplit=1)[0]
    return package if has_package(name) else name


def _uvx_packages(words: list[str]) -> Iterator[str]:
    """What ``uvx`` would install: each ``-w`` or ``--with``, and the command's own package."""
    rest = iter(words)
    for word in rest:
        if word in {"-w", "--with", "--from"}:
            yield from _packages(next(rest, ""))
        elif word in _VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            yield from _packages(word)
            return


def _addresses(task: Task) -> Iterator[str]:
    """Addresses beyond this machine in the tests themselves."""
    inside = {service.name for service in task.services}
    for path, data in task.tests.items():
        if not path.endswith(".py"):
            continue
        code = "\n".join(line for line in _text(data).splitlines() if not line.lstrip().startswith("#"))
        for found in _URL.finditer(code):
            if not _LOCAL.fullmatch(found["host"]) and "." in found["host"] and found["host"] not in inside:
                yield found[0]
