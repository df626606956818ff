"""Remarks on a task for its author and its users. Pure."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from itertools import pairwise

from sandbox.egress_proxy.settings import LOCAL_HOSTS, is_proxy_variable
from sandbox.grading.canary_conflicts import find_canary_conflict
from sandbox.grading.isolation.decision import find_exposed_places, find_isolation_risk, starts_plain_pytest
from sandbox.grading.isolation.environment import withheld_variables
from sandbox.grading.isolation.python_tests import ExposureKind
from sandbox.grading.isolation.unprivileged_programs import START_STOP_DAEMON
from sandbox.grading.shell_scripts.executed_text import executed_text
from sandbox.networking.phases import names_beside_proxy
from sandbox.tasks.allowed_hosts import parse_allowed_host
from sandbox.tasks.container_files import dockerfile
from sandbox.tasks.container_files.dockerfile_faults import find_foreign_stages
from sandbox.tasks.container_files.host_folders import HOST_FOLDERS
from sandbox.tasks.expected_tests import find_expected_tests
from sandbox.tasks.file_tree import is_within
from sandbox.tasks.formats.code_rows import HARNESS, find_missing_modules, find_uncrossable_usage
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode
from sandbox.toolchain.in_container.pins import PYTHON
from sandbox.toolchain.in_container.shim_rules import runs_on_newer_python
from sandbox.validation.network_needs import image_builds, verifier_texts

_TEST_FILE = re.compile(
    r"(?:\$TEST_DIR|\$\{TEST_DIR(?:(?!\$\{TEST_DIR)[^}])*+\}|(?<![\w./-])/tests)\"?/([\w./-]+\.py)\b"
)

_OTHER_PYTHON = re.compile(r"\buvx?\b[^\n;&|]*?\s(?:-p|--python)[ =]([\w.@]+)")
_PLATFORM = re.compile(r"--platform=[\"']?(?P<system>\w+/)?(?P<architecture>\w+)")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of images' architectures, by those of machines."""
_AGENTS_RECORD = re.compile(r"/logs/agent/trajectory\.json|\btrajectory_(?:turn_count|tool_(?:not_)?used)\b")
"""Matches its path, and what rewardkit judges by it."""
_MOST_SHOWN = 60
_BEFORE_A_CONDITION = {"[", "[[", "test", "!", "(", "-a", "-o", "&&", "||"}
"""Words after which `-e` and `-f` are a condition's, not a command's."""
_NO_OVERWRITING = {("set", "-C"), ("-o", "noclobber")}
_STARTS_AS = re.compile(rf"\b{START_STOP_DAEMON}\b|\buser\s*=\s*[1-9]")
_EXTRACTS = ((b"unpack_archive(",), (b"tarfile", b".extractall("), (b"tarfile", b".extract("))
"""Words of which all are in a test that extracts an archive."""
_EXPOSURES = {
    ExposureKind.IMPORTED: (
        "its tests run code that may be the agent's in their own process ({}): canaries show whether it falsifies "
        "all outcomes or reports, not whether it does so for some tests, reads what they expect, or has values that "
        "claim to equal all: start a program with user=65534 and compare what it prints"
    ),
    ExposureKind.STARTED: (
        "its tests start programs as their own user, who can read what they expect ({}): start them by subprocess "
        "with user=65534"
    ),
    ExposureKind.DIRECTED: (
        "its tests open files or run SQL by what the agent wrote ({}), which may be what they expect: start a program "
        "that does it, with user=65534"
    ),
}


def find_task_warnings(task: Task) -> Iterator[str]:
    """Yield one sentence for each warning."""
    return (what for what, _ in classify_task_warnings(task))


def classify_task_warnings(task: Task) -> Iterator[tuple[str, bool]]:
    """Yield each warning, and whether it is of something that the task says and does not get."""
    yield from ((what, False) for what in _task_warnings(task))
    yield from ((what, True) for what in _unfollowed(task))
    for step in task.in_steps:
        yield from ((f"{_in_step(step)}{what}", False) for what in _grading_warnings(step))


def _task_warnings(task: Task) -> Iterator[str]:
    yield from _image_warnings(task)
    if not task.has_oracle:
        yield "it has no oracle"
    if not task.gradable:
        yield "it has no tests: it cannot be graded"


def _unfollowed(task: Task) -> Iterator[str]:
    yield from _proxy_warnings(task)
    for step in task.in_steps:
        yield from (f"{_in_step(step)}{what}" for what in _unfollowed_by_tests(step))


def _in_step(task: Task) -> str:
    return f"step {task.step_name}: " if task.steps else ""


def _unfollowed_by_tests(task: Task) -> Iterator[str]:
    script = executed_text(task.run_tests)
    for version in sorted({each for each in _OTHER_PYTHON.findall(script) if runs_on_newer_python(each)}):
        yield f"its tests ask for Python {version} and run on the toolchain's {PYTHON}"
    if idle := sorted(_idle_weights(task)):
        yield f"its weights name {', '.join(idle)}, which is not a test of test_outputs.py"
    absent = sorted(_withheld(task))
    if absent and find_isolation_risk(task.run_tests, task.tests, plain=not absent) is None:
        yield f"its tests run on the toolchain's programs, which do not get {', '.join(absent)} from its environment"
    if "PATH" in task.test_env:
        yield "its tests find the toolchain's programs before those in the PATH that it gives them"


def _proxy_warnings(task: Task) -> Iterator[str]:
    """Yield what a task says of proxies and of hosts that does not count behind the egress proxy."""
    if NetworkMode.PROXY not in {task.network.agent, task.network.verify}:
        return
    beside = {*LOCAL_HOSTS, *names_beside_proxy(task), ""}
    of_tests = (pair for step in task.in_steps for pair in step.test_env.items())
    given = {*_image_environment(task).items(), *task.env.items(), *task.agent_env.items(), *of_tests}
    for name, value in sorted(given):
        excepted = {each.strip() for each in value.split(",")} if name.lower() == "no_proxy" else {value}
        if is_proxy_variable(name) and not excepted <= beside:
            yield (
                f"its {name} does not count: behind the egress proxy all but the sandbox itself and its services is "
                "reached by that"
            )
    for entry in task.network.allowed_hosts:
        if (allowed := parse_allowed_host(entry)) is not None and allowed.host in LOCAL_HOSTS:
            yield (
                f"its allowed host {entry} is the sandbox itself for programs there, which do not ask the proxy for "
                "it: name the machine by another of its addresses"
            )


def _image_environment(task: Task) -> dict[str, str]:
    build = task.build
    return dict(dockerfile.find_environment(_parsed(build), build.args, build.target)) if build else {}


def _grading_warnings(task: Task) -> Iterator[str]:
    if "\r\n" in task.run_tests:
        yield "its test script's lines end in CR LF, which no shell accepts: convert it with dos2unix"
    if absent := sorted(_named_tests(task) - task.tests.keys()):
        yield f"its tests name {', '.join(absent)}, which is not among them"
    if any(map(_AGENTS_RECORD.search, verifier_texts(task))):
        yield (
            "its tests read /logs/agent/trajectory.json, Harbor's record of what the agent did, which nothing but the "
            "agent itself writes here"
        )
    if any("/logs/verifier/test-stdout.txt" in each for each in verifier_texts(task)):
        yield "its tests name /logs/verifier/test-stdout.txt, Harbor's record of what they print, which is not there"
    if task.reports and (found := _find_use_of_existence(task.run_tests)):
        yield (
            f"its script has {_short(found)}: report files exist, empty, before the tests begin; "
            "whether one has been written says `[ -s FILE ]`"
        )
    yield from find_uncrossable_usage(task)
    yield from find_missing_modules(task)
    if task.grading is GradingLevel.ARTIFACTS and not task.carries_artifacts:
        yield (
            "its tests run in a clean container, but it declares no artifacts: nothing that an agent does can pass; "
            "name the files to be graded in artifacts, or grade it at `same`"
        )
    yield from _isolation_warnings(task)


def _find_use_of_existence(script: str) -> str:
    """Return the words by which a script asks whether there is a report, or writes none over one; empty without any."""
    for line in script.splitlines():
        words = line.partition("#")[0].split()
        names = [any(report in word for report in ("reward.txt", "reward.json")) for word in words]
        some = any(names)
        for before, (first, second), is_report in zip(["", *words], pairwise(words), names[1:], strict=False):
            asks = first in {"-e", "-f"} and is_report and before in _BEFORE_A_CONDITION
            if asks or (first, second) in _NO_OVERWRITING or (some and (first, second) == ("mv", "-n")):
                return f"{first} {second}"
    return ""


def _isolation_warnings(task: Task) -> Iterator[str]:
    """Yield what an agent can do to the programs that run the tests, or through those that they start."""
    why = find_isolation_risk(task.run_tests, task.tests, plain=not _withheld(task))
    if why is not None and why.instead:
        yield f"its tests do not isolate the agent's program, because of {_short(why.what)}: {why.instead}"
    elif why is not None and not (_graded_in_a_clean_image(task) or task.grading is GradingLevel.LIVE):
        yield (
            "its tests run on programs of the image, which an agent can have replaced, "
            f"because of {_short(why.what)} in its script: grade it at `artifacts`"
        )
    elif why is None and starts_plain_pytest(task.run_tests, task.tests):
        yield "its script starts the image's pytest, but the toolchain's runs its tests (docs/grading.md)"
    if why is not None and any(map(_extracts, task.tests.items())):
        yield (
            "its tests extract archives by the image's Python, which may follow links in them to what is expected: "
            "give filter='data'"
        )
    yield from _exposure_warnings(task)
    if conflict := find_canary_conflict(task):
        yield f"its tests run without canaries, because of {_short(conflict)} (docs/grading.md)"
    if any(map(_STARTS_AS.search, verifier_texts(task))):
        if task.grading is GradingLevel.LIVE:
            yield "its tests start programs as another user, by which live processes can see them (docs/grading.md)"
        elif why is None:
            yield (
                "its tests start programs as another user, who can replace files that they read as that user "
                "(docs/grading.md)"
            )


def _exposure_warnings(task: Task) -> Iterator[str]:
    """Yield what code of the agent could do in the tests' process or as their user, and what its text could have them
    do."""
    own = {path: text for path, text in task.tests.items() if HARNESS.get(path) != text}
    found = list(find_exposed_places(task.run_tests, own))
    for kind, harm in _EXPOSURES.items():
        if places := [each for each in found if each.kind is kind]:
            first, more = places[0], f" and {len(places) - 1} more" if len(places) > 1 else ""
            yield harm.format(f"{_short(first.what)} in {first.file}:{first.line}{more}")


def _extracts(test: tuple[str, bytes]) -> bool:
    """Return whether a file, by path, is Python that extracts archives as the running version of it does."""
    path, data = test
    used = any(all(word in data for word in words) for words in _EXTRACTS)
    return used and path.endswith(".py") and b"filter=" not in data


def _image_warnings(task: Task) -> Iterator[str]:
    for build in image_builds(task):
        mounted = (path.removeprefix(f"{HOST_FOLDERS}/") for path in build.files if is_within(path, [HOST_FOLDERS]))
        names = {path.split("/")[0] for path in (*dockerfile.copied_sources(_parsed(build)), *mounted)}
        for name in sorted(names & {"tests", "solution.sh", "solution.yaml", "solution", "run-tests.sh"}):
            yield f"its image contains {name}, which the agent can read"
        machine = _MACHINES.get(platform.machine(), platform.machine())
        asked = (_PLATFORM.match(each.arguments) for each in _parsed(build) if each.name == "FROM")
        for architecture in sorted({each["architecture"] for each in asked if each} - {machine}):
            yield f"its Dockerfile is for {architecture}, whose programs do not run on this machine ({machine})"
        for name in sorted(set(find_foreign_stages(_parsed(build)))):
            yield f"its Dockerfile copies from {name}, which is none of its stages: an image of that name is pulled"


def _withheld(task: Task) -> frozenset[str]:
    """Return variables of the image and the task that tests on the toolchain's programs do not get."""
    return withheld_variables({**_image_environment(task), **task.env, **task.test_env})


def _parsed(build: ImageBuild) -> list[dockerfile.DockerfileInstruction]:
    return dockerfile.parse_instructions(build.files.get(build.dockerfile, b"").decode(errors="replace"))


def _short(text: str) -> str:
    """Return the text in one line, shortened."""
    line = " ".join(text.split())
    return f"`{line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + ' …'}`"


def _graded_in_a_clean_image(task: Task) -> bool:
    return task.grading is GradingLevel.ARTIFACTS or (task.grading is GradingLevel.SIBLING and bool(task.artifacts))


def _named_tests(task: Task) -> set[str]:
    """Return the Python files in the tests' folder that the script names."""
    return {found[1] for found in _TEST_FILE.finditer(executed_text(task.run_tests))}


def _idle_weights(task: Task) -> set[str]:
    """Return the weights of tests that do not exist, if the tests are certain."""
    known = find_expected_tests(task.run_tests, task.tests)
    return {name for name in task.weights if known and name not in known}
