"""Finds what a task needs from the network, by phase.

It is read from scripts, so it is a guess in both directions; ``validate --run`` is the proof. What the toolchain
provides is not a need (:mod:`sandbox.toolchain.in_container.shim_rules`): uv and its installer, pytest and its CTRF
plugin, rewardkit without judges, curl, wget and certificates.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sandbox.grading.shell_scripts.executed_text import executed_text
from sandbox.tasks.container_files import dockerfile
from sandbox.tasks.task import STEP_SETUP, Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_network import NetworkMode
from sandbox.toolchain.in_container.rewardkit_judges import find_judges
from sandbox.toolchain.in_container.shim_rules import REWARDKIT
from sandbox.validation.network_requests import LOCAL_ADDRESS, find_network_requests, find_script_dependencies


class TaskPhase(StrEnum):
    BUILD = "build"
    SETUP = "setup"
    ORACLE = "oracle"
    """The solution needs it, so an agent probably does too."""
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class NetworkNeed:
    phase: TaskPhase
    what: str
    """The command or address, shortened."""


_URL = re.compile(r"https?://(?P<host>[\w.-]+)(?::\d+)?[^\s\"')]*")
_SHOWN = 100


def find_network_needs(task: Task) -> tuple[NetworkNeed, ...]:
    """Return what the task needs from the network, without repeats, by phase."""
    scripts: list[tuple[TaskPhase, str]] = []
    for build in image_builds(task):
        text = build.files[build.dockerfile].decode(errors="replace")
        scripts += [
            (TaskPhase.BUILD, "\n".join((each.instruction.arguments, *(heredoc.text for heredoc in each.heredocs))))
            for each in dockerfile.read_statements(text)
            if each.instruction.name in {"RUN", "ADD"}
        ]
    scripts += [(TaskPhase.SETUP, task.setup)]
    scripts += [(TaskPhase.SETUP, _text(step.files.get(STEP_SETUP, b""))) for step in task.steps]
    for step in task.in_steps:
        scripts += [(TaskPhase.ORACLE, step.solution), (TaskPhase.VERIFY, step.run_tests)]
        scripts += [(TaskPhase.VERIFY, _text(data)) for path, data in step.tests.items() if path.endswith(".sh")]
    needs = [NetworkNeed(phase, what[:_SHOWN]) for phase, text in scripts for what in find_network_requests(text)]
    for step in task.in_steps:
        found = [
            *_addresses(step),
            *_judges(step),
            *(each for text in _run_by_uv(step) for each in find_script_dependencies(text)),
        ]
        needs += [NetworkNeed(TaskPhase.VERIFY, what[:_SHOWN]) for what in found]
    return tuple(dict.fromkeys(needs))


def find_unmet_needs(task: Task) -> tuple[NetworkNeed, ...]:
    """Return the needs that the task's own network setting does not meet."""
    net = task.network
    modes = {
        TaskPhase.BUILD: net.build,
        TaskPhase.SETUP: net.agent,
        TaskPhase.ORACLE: net.agent,
        TaskPhase.VERIFY: net.verify,
    }
    return tuple(need for need in find_network_needs(task) if modes[need.phase] is NetworkMode.NONE)


def image_builds(task: Task) -> list[ImageBuild]:
    """Return the builds of the images of the agent, its services and its tests that have a Dockerfile."""
    every = [each.build for each in (task, *task.services, *task.tests_environments)]
    return [build for build in every if build is not None and build.dockerfile in build.files]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def verifier_texts(task: Task) -> list[str]:
    """Return what the scripts of the tests execute, and their Python files."""
    scripts = [task.run_tests, *(_text(data) for path, data in task.tests.items() if path.endswith(".sh"))]
    return [*map(executed_text, scripts), *(_text(data) for path, data in task.tests.items() if path.endswith(".py"))]


def _run_by_uv(task: Task) -> list[str]:
    """Return the tests' texts as they are, because comments of Python programs name what uv installs for them."""
    texts = [task.run_tests, *(_text(data) for path, data in task.tests.items() if path.endswith((".py", ".sh")))]
    return texts if "uv run" in task.run_tests else []


def _judges(task: Task) -> Iterator[str]:
    """Yield the judges of rewardkit that the tests ask."""
    if any(REWARDKIT in text for text in verifier_texts(task)):
        yield from (f"{REWARDKIT}'s judge of {path}" for path in find_judges(task.tests))


def _addresses(task: Task) -> Iterator[str]:
    """Yield addresses in the tests that are not on this machine."""
    inside = {*task.service_names, *task.aliases}
    for path, data in task.tests.items():
        if not path.endswith(".py"):
            continue
        code = "\n".join(line for line in _text(data).splitlines() if not line.lstrip().startswith("#"))
        for found in _URL.finditer(code):
            if not LOCAL_ADDRESS.fullmatch(found["host"]) and "." in found["host"] and found["host"] not in inside:
                yield found[0]
