"""What a task wants beyond its own container: the network, by phase, and services that live while it is graded.

Read from scripts, so a guess in both directions; ``validate --run`` is the proof.  What the verifier kit brings is no
need (:mod:`sandbox.kit.answers`): uv and its installer, pytest and its CTRF plugin, curl, wget and certificates.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sandbox.tasks import dockerfile
from sandbox.tasks.task import ImageBuild, NetworkMode, Task
from sandbox.tasks.wants import LOCAL, wanted


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


_URL = re.compile(r"https?://(?P<host>[\w.-]+)(?::\d+)?[^\s\"')]*")
_SHOWN = 100


def network_needs(task: Task) -> tuple[Need, ...]:
    """What would be asked of the network, once each, by phase."""
    scripts: list[tuple[Phase, str]] = []
    for build in builds(task):
        text = build.files[build.dockerfile].decode(errors="replace")
        scripts += [(Phase.BUILD, rest) for name, rest in dockerfile.instructions(text) if name in {"RUN", "ADD"}]
    scripts += [(Phase.SETUP, task.setup), (Phase.ORACLE, task.solution), (Phase.VERIFY, task.run_tests)]
    scripts += [(Phase.VERIFY, _text(data)) for path, data in task.tests.items() if path.endswith(".sh")]
    needs = [Need(phase, what[:_SHOWN]) for phase, text in scripts for what in wanted(text)]
    needs += [Need(Phase.VERIFY, what[:_SHOWN]) for what in _addresses(task)]
    return tuple(dict.fromkeys(needs))


def unmet(task: Task) -> tuple[Need, ...]:
    """The needs that the task's own network setting does not meet."""
    net = task.network
    modes = {Phase.BUILD: net.build, Phase.SETUP: net.agent, Phase.ORACLE: net.agent, Phase.VERIFY: net.verify}
    return tuple(need for need in network_needs(task) if modes[need.phase] is NetworkMode.NONE)


def live_services(task: Task) -> tuple[str, ...]:
    """What must be alive while the tests run: declared services, and local ports that the tests speak to."""
    spoken = [found for text in test_texts(task) for found in LOCAL.finditer(text)]
    ports = {f"localhost:{found[1]}" if found[1] else "localhost" for found in spoken}
    return (*(service.name for service in task.services), *sorted(ports))


def builds(task: Task) -> list[ImageBuild]:
    """Those of the agent's image and of its services', each with a Dockerfile."""
    every = (task.build, *(service.build for service in task.services))
    return [build for build in every if build is not None and build.dockerfile in build.files]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def test_texts(task: Task) -> list[str]:
    """The scripts and Python files of its tests."""
    return [task.run_tests, *(_text(data) for path, data in task.tests.items() if path.endswith((".py", ".sh")))]


def _addresses(task: Task) -> Iterator[str]:
    """Addresses beyond this machine in the tests themselves."""
    inside = {service.name for service in task.services}
    for path, data in task.tests.items():
        if not path.endswith(".py"):
            continue
        code = "\n".join(line for line in _text(data).splitlines() if not line.lstrip().startswith("#"))
        for found in _URL.finditer(code):
            if not LOCAL.fullmatch(found["host"]) and "." in found["host"] and found["host"] not in inside:
                yield found[0]
