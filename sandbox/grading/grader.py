"""Hidden tests → a result for each, of what an agent left in its container.

Before a byte of a test enters a container, nothing of the agent's runs in it, not even the shell that PID 1 starts of
an image (:mod:`sandbox.grading.containers.grading_container` says which container that is).  The tests run as PID 1's child in an environment
that the agent has no hand in (:mod:`sandbox.grading.isolation.environment`); the verdict is read from that child's own stream,
which nothing that ran before can reach, and from report files that were emptied before and are read after everything
else has been killed.

``sh`` and ``bash`` scripts run in static shells with static tools that are mounted read-only, and a stock script's
``apt-get``, ``curl`` and ``uv`` are answered by the kit, whose own Python then runs pytest, without a network: a
poisoned shell, grep, git, PATH, bashrc, Python, pytest, project or ld.so.preload changes nothing
(:attr:`Isolation.KIT`).  A script that names an interpreter or a test runner of the image's gets that, after the kit's
stand-ins: only a clean container (levels ``artifacts`` and ``sibling``) then keeps an agent from having replaced it
(:attr:`Isolation.IMAGE`).

Links that lead to the tests' folder are removed when the tests are in, so that no answer is what they expect
(:mod:`sandbox.grading.containers.symlink_guard`).

No grader can protect tests from code that they run in their own process or as their own user: tests that start the
agent's program do it as nobody (pytest: ``subprocess.run(…, user=65534)``; shell: ``start-stop-daemon -S -c 65534:65534
-x PROGRAM -- … < /dev/null 2> /dev/null``, its output taken).

Tests that fail, hang, are killed or cannot be written because the agent filled its disk are outcomes.  Only a daemon or
a PID 1 that does not answer is infrastructure (InfraError).
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from protocol.errors import InfraError
from protocol.truncation import HeadTailBuffer
from sandbox.errors import DestructionCause, SandboxDestroyed, SandboxLost
from sandbox.grading.containers.agent_processes import kill_agent_processes
from sandbox.grading.containers.artifacts import UnfitArtifactError
from sandbox.grading.containers.container_paths import clear_paths
from sandbox.grading.containers.grading_container import longest_overhead_s, open_grading_container
from sandbox.grading.containers.symlink_guard import remove_links
from sandbox.grading.isolation.decision import Isolation, choose_shell, decide_isolation, shell_scripts
from sandbox.grading.isolation.environment import TEMPORARY_DIR, TESTS_DIR, build_test_environment
from sandbox.grading.isolation.pytest_settings import EMPTY_SETTINGS, has_pytest_settings
from sandbox.grading.results.pytest_summary import SummaryParser
from sandbox.grading.results.report_files import MAX_REPORT_BYTES, read_report
from sandbox.grading.results.verdict import (
    REWARD_TEST,
    GradedTest,
    GradingReport,
    GradingVerdict,
    find_contradiction,
    judge_reports,
    weighted_score,
)
from sandbox.grading.suspicions import Suspicion, find_suspicions
from sandbox.session import wire
from sandbox.session.child_process import run_child_process
from sandbox.session.files import FileTooLarge, replace_path, write_files
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import GradingLevel, NetworkMode, Task
from sandbox.toolchain.in_container.layout import CREATED_PATHS_FILE, FACTS_FILE

TEST_SCRIPT_NAME = ".longshore-tests.sh"
"""What is run: a name in :data:`TESTS_DIR` that no task gives a file of its own."""
_KNOWN_AS = ("run-tests.sh", "test.sh")
"""What Terminal-Bench and Harbor call it, where the task has nothing else by that name."""
_VERDICTS = "/logs/verifier"
"""Harbor's folder for what tests leave: what the agent has made of it is gone."""
_OF_ROOT = f"{TEMPORARY_DIR}/pytest-of-root/"
"""Where root's pytest makes its own: nobody else can have made it before."""
_MOST_MADE_BYTES, _AT_ONCE = 64 << 10, 128
_INSTALLED = ".local/bin/env"
"""What uv's installer writes and scripts source, in root's home."""
_LOG_BYTES = 16 << 10
_UNQUOTED = str.maketrans("", "", "\"'\\")


@dataclass(frozen=True, slots=True)
class GradeResult:
    tests: tuple[GradedTest, ...]
    reward: float | None
    """What the tests' own reward file said, 0 … 1; None when they wrote none."""
    log: str
    """What the tests printed, head and tail, which links were removed before, and why it proves nothing where that is
    so."""
    level: GradingLevel
    """Where they ran.  At ``sibling`` the agent's processes were alive."""
    isolation: Isolation
    timed_out: bool
    ms: float
    suspicions: tuple[Suspicion, ...] = ()
    """Commands of a full pass that a person should read."""

    @property
    def pass_ratio(self) -> float:
        """Passed ÷ all, 0 when there is no test."""
        return sum(test.passed for test in self.tests) / len(self.tests) if self.tests else 0.0

    @property
    def all_passed(self) -> bool:
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def score(self) -> float:
        """Weight of what passed ÷ weight of all, 0 … 1; the reward itself where it is all that the tests wrote."""
        alone = [test.name for test in self.tests] == [REWARD_TEST]
        return self.reward if alone and self.reward is not None else weighted_score(self.tests)


@dataclass(slots=True)
class _TestRun:
    """A test run, as far as it came."""

    verdict: GradingVerdict | None = None
    """None where it proves nothing; ``note`` says why."""
    log: str = ""
    note: str = ""
    timed_out: bool = False
    removed: str = ""
    """Links that led among the tests, as the log says it."""


async def grade_sandbox(
    session: SandboxSession, task: Task, timeout_s: float | None = None, commands: Sequence[str] = ()
) -> GradeResult:
    """Grade what the agent left, at the task's level.  Except at ``sibling`` the session's shell does not survive.
    However this ends, nothing of the tests runs on in the agent's container, and what of theirs lies there is what they
    wrote outside their own folders.

    ``commands`` is what the agent ran, for :attr:`GradeResult.suspicions`.  Raises InfraError (SandboxLost,
    SandboxStartError, EngineError) when a container or its daemon does not answer, SandboxDestroyed when the agent's is
    gone.
    """
    started = time.perf_counter()
    limit_s = timeout_s or task.test_timeout_s
    isolation = None
    try:
        async with (
            open_grading_container(session, task, limit_s) as bench,
            session.verification_network(bench) as network,
            _taken_back(bench, task, wanted=bench is session),
        ):
            verifier = await _has_verifier(bench)
            isolation = decide_isolation(task.run_tests, task.tests, verifier=verifier)
            env = await _environment(session, task, isolation, network)
            ran = await _prepared(bench, task, isolation, limit_s, env, verifier=verifier)
    except UnfitArtifactError as error:
        ran = _TestRun(note=f"what the agent left could not be carried to its tests: {error}")
    tests, reward = ran.verdict or judge_reports(task.expected_tests, task.weights, ())
    passed = bool(tests) and all(test.passed for test in tests)
    return GradeResult(
        tests,
        reward,
        ran.log + "".join(f"\n[{each}]\n" for each in (ran.removed, ran.note) if each),
        task.grading,
        isolation or decide_isolation(task.run_tests, task.tests),
        ran.timed_out,
        (time.perf_counter() - started) * 1000,
        find_suspicions(commands, task) if passed else (),
    )


def max_grading_s(task: Task, timeout_s: float | None = None) -> float:
    """What :func:`grade` takes at most on a host that answers."""
    return (timeout_s or task.test_timeout_s) + longest_overhead_s(task.grading)


async def _has_verifier(bench: SandboxSession) -> bool:
    """Whether the kit that is mounted there has its verifier half."""
    try:
        return bool(await bench.read_file(FACTS_FILE))
    except FileNotFoundError:
        return False


async def _environment(
    session: SandboxSession, task: Task, isolation: Isolation, network: Mapping[str, str]
) -> dict[str, str]:
    """Of the tests; ``network`` is what they need there for theirs."""
    image = await session.image_environment()
    offline = task.network.verify is NetworkMode.NONE
    folders = (task.workdir, *task.artifacts)
    return build_test_environment(image, task.env, network, isolation, folders, offline=offline)


async def _prepared(
    bench: SandboxSession,
    task: Task,
    isolation: Isolation,
    limit_s: float,
    env: Mapping[str, str],
    *,
    verifier: bool,
) -> _TestRun:
    """Bring the tests in, remove the links that lead among them, run them."""
    why = await _bring_in(bench, task, isolation)
    if why:
        return _TestRun(note=why)
    removed, why = await remove_links(bench, tuple(folders_for_tests(task)))
    ran = _TestRun(note=why) if why else await _test(bench, task, limit_s, env, verifier=verifier)
    return dataclasses.replace(ran, removed=removed)


async def _test(
    bench: SandboxSession, task: Task, limit_s: float, env: Mapping[str, str], *, verifier: bool
) -> _TestRun:
    """Run the tests, collect what they said."""
    summary, log = SummaryParser(), HeadTailBuffer(_LOG_BYTES, _LOG_BYTES)

    def take(data: bytes) -> bool:
        summary.feed(data)
        log.feed(data)
        return True

    argv = (*choose_shell(task.run_tests, verifier=verifier).argv, f"{TESTS_DIR}/{TEST_SCRIPT_NAME}")
    try:
        end = await run_child_process(bench, argv, take, env=env, limit_s=limit_s, cwd=task.workdir)
    except OSError as error:
        raise SandboxLost(f"the tests could not be started: {error}") from error
    if end is None:
        await kill_agent_processes(bench)
        return _TestRun(log=log.text(), note=f"the tests ran out of their {limit_s:g} s", timed_out=True)
    files, silent = await _reports(bench, task.reports) if task.reports else ((), "")
    xfails = any(b"xfail" in each for each in (task.run_tests.encode(), *task.tests.values()))
    verdict = judge_reports(task.expected_tests, task.weights, (*files, summary.report()), xfails=xfails)
    note = find_contradiction(end.code, end.signalled, verdict.tests) or silent
    return _TestRun(None if note else verdict, log.text(), note)


@asynccontextmanager
async def _taken_back(bench: SandboxSession, task: Task, *, wanted: bool) -> AsyncGenerator[None]:
    """At the end, however it comes, what the tests left running is dead, their folders and their reports are empty, and
    what pytest and the stand-ins made elsewhere is gone; or the container has ended, and the verdict that has been read
    stands."""
    try:
        yield
    finally:
        if wanted and bench.alive:
            await asyncio.shield(_take_back(bench, task))


async def _take_back(bench: SandboxSession, task: Task) -> None:
    try:
        await kill_agent_processes(bench)
        made = await _made(bench)
        for at in range(0, len(made), _AT_ONCE):
            await clear_paths(bench, made[at : at + _AT_ONCE])
        for folder in folders_for_tests(task):
            await replace_path(bench, f"{folder}/", mode=0o700, flags=wire.WriteFlag.REPLACE | wire.WriteFlag.CLEAR)
        for report in task.reports:
            await replace_path(bench, report, mode=0o600)
    except (OSError, FileTooLarge, InfraError, SandboxDestroyed) as error:
        await bench.destroy(
            SandboxDestroyed(f"its tests could not be taken out of it again: {error}", DestructionCause.TESTED)
        )


async def _made(bench: SandboxSession) -> list[str]:
    """What the kit's stand-ins have made, by their own note."""
    try:
        noted = await bench.read_file(CREATED_PATHS_FILE, _MOST_MADE_BYTES)
    except FileNotFoundError:
        return []
    return [os.fsdecode(each) for each in dict.fromkeys(noted.split(b"\0")) if each.startswith(b"/")]


def files_for_tests(task: Task, isolation: Isolation) -> dict[str, bytes]:
    """Path below :data:`TESTS_DIR` → content: the task's script and its other files, none in another's place.  With
    settings of pytest's there, it looks for settings and conftest.py nowhere above."""
    script, taken = task.run_tests.encode(), {path.partition("/")[0] for path in task.tests}
    files = {name: script for name in _KNOWN_AS if name not in taken} | task.tests | {TEST_SCRIPT_NAME: script}
    if not has_pytest_settings(files, newest=isolation is Isolation.IMAGE):
        files |= EMPTY_SETTINGS
    return files


def _mentions(task: Task, path: str) -> bool:
    """Whether a script of the tests, or what says where their reports are, speaks of it, wherever its quotes are."""
    texts = (task.run_tests, *task.reports, *shell_scripts(task.tests).values())
    return any(path in text.translate(_UNQUOTED) for text in texts)


def folders_for_tests(task: Task) -> dict[str, int]:
    """The tests' own, which are empty when they begin → mode."""
    verdicts = {_VERDICTS: 0o700} if _mentions(task, _VERDICTS) else {}
    return {TESTS_DIR: 0o700, TEMPORARY_DIR: 0o1777, **verdicts}


async def _bring_in(bench: SandboxSession, task: Task, isolation: Isolation) -> str:
    """Put the tests in place and empty files where their reports go.  Returns why not, when what the agent left
    prevents it."""
    files = {f"{TESTS_DIR}/{name}": data for name, data in files_for_tests(task, isolation).items()}
    try:
        for folder, mode in folders_for_tests(task).items():
            await replace_path(bench, f"{folder}/", mode=mode)
        await write_files(bench, {**files, _OF_ROOT: b""}, mode=0o700)
        if isolation is Isolation.TOOLCHAIN and _mentions(task, _INSTALLED):
            installed = f"/root/{_INSTALLED}"
            await replace_path(bench, installed)
            await write_files(bench, {CREATED_PATHS_FILE: installed.encode() + b"\0"}, mode=0o600)
        for report in task.reports:
            await replace_path(bench, report, mode=0o600)
    except OSError as error:
        return f"the tests could not be written into the container: {error.strerror}"
    return ""


async def _reports(bench: SandboxSession, paths: Sequence[str]) -> tuple[tuple[GradingReport, ...], str]:
    """What the report files say, once nobody is left who could write them, and why the run proves nothing: none says
    anything, or one is more than is read.  Links and empty files say nothing."""
    await kill_agent_processes(bench)
    found: list[GradingReport] = []
    for path in paths:
        try:
            report = read_report(path, await bench.read_file(path, MAX_REPORT_BYTES))
        except FileTooLarge as error:
            return (), str(error)
        except OSError:
            continue
        if report.tests or report.reward is not None:
            found.append(report)
    return tuple(found), "" if found else f"the tests wrote none of {', '.join(paths)}"
