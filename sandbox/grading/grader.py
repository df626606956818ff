"""Grades an attempt: runs hidden tests on the files that an agent left in its container, with one result per test.

Before a byte of a test enters a container, every process of the agent is dead, even the shell that PID 1 starts from an
image (:mod:`sandbox.grading.containers.grading_container` chooses the container). Only at level ``live`` they keep
running, beside the tests, whose folders they cannot see (:attr:`Isolation.LIVE`), and afterwards.  The tests run as
PID 1's child in an environment that the agent cannot influence (:mod:`sandbox.grading.isolation.environment`).  The
verdict is read from that child's own output stream, which nothing that ran before can reach, and from report files that
are emptied before and read after everything that could write them has been killed.

``sh`` and ``bash`` scripts run in static shells with static tools that are mounted read-only, and the toolchain answers
a stock script's ``apt-get``, ``curl`` and ``uv``; its own Python then runs pytest without a network: a poisoned shell,
grep, git, PATH, bashrc, Python, pytest, project or ld.so.preload changes nothing
(:attr:`Isolation.TOOLCHAIN`). A script that names an interpreter or a test runner of the image gets that, after the
toolchain's shims: then only a clean container (levels ``artifacts`` and ``sibling``) prevents an agent from having
replaced it (:attr:`Isolation.IMAGE`).

Links that lead to the tests' folder are removed once the tests have been written, so that no answer is a link to the
expected result (:mod:`sandbox.grading.containers.symlink_guard`).

No grader can protect tests from code that they run in their own process or as their own user: tests that start the
agent's program must do so as nobody (pytest: ``subprocess.run(…, user=65534)``; shell: ``start-stop-daemon -S -c
65534:65534 -x PROGRAM -- … < /dev/null 2> /dev/null`` with its output captured).

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
from functools import partial

from protocol.errors import InfraError
from protocol.truncation import HeadTailBuffer
from sandbox.errors import DestructionCause, SandboxDestroyed, SandboxLost
from sandbox.grading.canaries import CANARIES_FILE, MAX_RECORD_BYTES, Canaries, plan_canaries
from sandbox.grading.containers.agent_processes import kill_tests
from sandbox.grading.containers.artifacts import UnfitArtifactError
from sandbox.grading.containers.collected_state import collect_state
from sandbox.grading.containers.container_paths import clear_paths, give_paths, touch
from sandbox.grading.containers.grading_container import longest_overhead_s, open_grading_container
from sandbox.grading.containers.symlink_guard import remove_links
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grading_run import GradingRun, judge_run
from sandbox.grading.hidden_tests import files_for_tests, folders_for_tests, mentions_path, script_path
from sandbox.grading.isolation.decision import (
    Isolation,
    calls_plain_programs,
    decide_isolation,
    find_reported_isolation,
    runs_agent_code,
)
from sandbox.grading.isolation.environment import TEMPORARY_DIR, TESTS_DIR, build_test_environment, withheld_variables
from sandbox.grading.isolation.script_shell import choose_shell
from sandbox.grading.results.marked_output import make_output_parser
from sandbox.session.child_process import run_child_process
from sandbox.session.files import FileTooLarge, read_file, replace_path, write_files
from sandbox.session.init_connection.init_requests import FileFlag
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.formats.liveweb.web_checks import SILENT_SITE_EXIT
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode
from sandbox.toolchain.in_container.layout import CREATED_PATHS_FILE, FACTS_FILE

_PYTEST_DIR = f"{TEMPORARY_DIR}/pytest-of-root/"
"""Folder of root's pytest, created before any other user can create it."""
_MAX_CREATED_BYTES, _CLEARED_AT_ONCE = 64 << 10, 128
_UV_ENVIRONMENT = ".local/bin/env"
"""File in the home of the tests' user that uv's installer writes and scripts source."""
_LOG_BYTES = 16 << 10


async def grade_sandbox(
    session: SandboxSession, task: Task, timeout_s: float | None = None, commands: Sequence[str] = ()
) -> GradeResult:
    """Grade what the agent left, at the task's level. The session's shell survives only at ``live`` and ``sibling``.

    However this ends, no process of the tests keeps running in the agent's container, and only the files that they
    wrote outside their own folders remain. ``commands``: what the agent ran, for :attr:`GradeResult.suspicions`.
    Raises InfraError (SandboxLost, SandboxStartError, DockerEngineError) if a container or its daemon does not
    answer, SandboxDestroyed if the agent's container has ended, UserError where ``live`` is impossible.
    """
    started = time.perf_counter()
    limit_s = timeout_s or task.test_timeout_s
    isolation = None
    notes = await collect_state(session, task)
    try:
        async with (
            open_grading_container(session, task, limit_s) as test_session,
            session.verification_network(test_session) as network,
            _tests_removed(test_session, task, wanted=test_session is session),
        ):
            verifier = await _has_verifier(test_session)
            given = await _given_variables(session, test_session, task)
            isolation = _decide_isolation(task, verifier=verifier, plain=not withheld_variables(given))
            canaries = plan_canaries(task) if verifier else None
            env = _test_environment(test_session, task, given, isolation, network)
            run = await _run_tests(test_session, task, isolation, limit_s, env, verifier=verifier, canaries=canaries)
    except UnfitArtifactError as error:
        run = GradingRun(note=f"the agent's files could not be copied to the tests: {error}")
    isolation = find_reported_isolation(isolation or _decide_isolation(task), task.run_tests, task.tests)
    if task.grading is GradingLevel.LIVE:
        isolation = Isolation.LIVE
    result = run.result(task, commands, task.grading, isolation, (time.perf_counter() - started) * 1000)
    return dataclasses.replace(result, log="\n".join((result.log, *notes, *session.stopped_services)))


def max_grading_s(task: Task, timeout_s: float | None = None) -> float:
    """Return the maximum seconds that :func:`grade_sandbox` takes on a host that answers."""
    collect_s = max(sum(each.timeout_s for each in step.collect) for step in task.in_steps)
    return (timeout_s or task.test_timeout_s) + collect_s + longest_overhead_s(task.grading)


def _decide_isolation(task: Task, *, verifier: bool = True, plain: bool = True) -> Isolation:
    if task.has_tests_image:
        return Isolation.IMAGE
    return decide_isolation(task.run_tests, task.tests, verifier=verifier, plain=plain)


async def _given_variables(session: SandboxSession, test_session: SandboxSession, task: Task) -> dict[str, str]:
    """Return the variables of the image, of the task and of its login shells for its tests."""
    image, own = await test_session.image_config(), task.tests_environment
    of_container = {**task.env, **dict(session.login_variables.tests)} if own is None else own.env
    return {**dict(image.env), **of_container, **task.test_env}


async def _has_verifier(test_session: SandboxSession) -> bool:
    """Return whether the toolchain that is mounted in the container has its verifier half."""
    try:
        return bool(await read_file(test_session, FACTS_FILE))
    except FileNotFoundError:
        return False


def _test_environment(
    test_session: SandboxSession, task: Task, given: Mapping[str, str], isolation: Isolation, network: Mapping[str, str]
) -> dict[str, str]:
    """Return the tests' environment; ``network``: the variables for the network of their phase."""
    return build_test_environment(
        given,
        network,
        isolation,
        (task.workdir, *task.artifacts),
        home=test_session.tests_user.home,
        plain=isolation is Isolation.TOOLCHAIN and calls_plain_programs(task.run_tests, task.tests),
        offline=task.network.verify is NetworkMode.NONE,
    )


async def _run_tests(
    test_session: SandboxSession,
    task: Task,
    isolation: Isolation,
    limit_s: float,
    env: Mapping[str, str],
    *,
    verifier: bool,
    canaries: Canaries | None,
) -> GradingRun:
    """Write the tests into the container, remove the links that lead to them, run and judge them."""
    why = await _write_tests(test_session, task, isolation, canaries)
    if why:
        return GradingRun(note=why)
    try:
        removed, why = await remove_links(test_session, tuple({TESTS_DIR, *folders_for_tests(task)}))
        if why:
            return GradingRun(note=why, removed_links=removed)
        env = {**env, **(canaries.variables(env, isolation) if canaries else {})}
        run = await _run_script(test_session, task, limit_s, env, verifier=verifier)
    except OSError as error:
        if task.grading is GradingLevel.LIVE:
            return GradingRun(note=f"the tests could not be started beside what the agent left running: {error}")
        raise SandboxLost(f"the tests could not be started: {error}") from error
    trusts_reward = isolation is Isolation.TOOLCHAIN and not runs_agent_code(task.tests)
    if canaries and not run.timed_out:
        record = canaries.judge(await _canary_record(test_session))
        run = run.with_canaries(record, trusts_reward=trusts_reward)
    elif trusts_reward:
        run = run.by_reward()
    return dataclasses.replace(run, removed_links=removed)


async def _canary_record(test_session: SandboxSession) -> bytes:
    """Return the canaries' file; nothing if the tests have replaced it."""
    try:
        return await read_file(test_session, CANARIES_FILE, MAX_RECORD_BYTES)
    except (OSError, FileTooLarge):
        return b""


async def _run_script(
    test_session: SandboxSession, task: Task, limit_s: float, env: Mapping[str, str], *, verifier: bool
) -> GradingRun:
    """Run the test script and judge it.

    Raises OSError if it cannot be started, SandboxLost if a site of a web task does not answer."""
    output = make_output_parser(task.results_format, alone=not task.reports)
    log = HeadTailBuffer(_LOG_BYTES, _LOG_BYTES)

    def feed(data: bytes) -> bool:
        output.feed(data)
        log.feed(data)
        return True

    argv = (*choose_shell(task.run_tests, verifier=verifier).argv, script_path(task))
    user, cwd = test_session.tests_user.process, test_session.workdir
    end = await run_child_process(test_session, argv, feed, env=env, limit_s=limit_s, cwd=cwd, user=user)
    if end is None or task.reports:
        await kill_tests(test_session, task.grading)  # then nothing is left that could write a report
    if end is not None and task.start_url and end.code == SILENT_SITE_EXIT:
        raise SandboxLost(f"the tests found no site that answers: {log.text().strip()}")
    if end is None:
        return GradingRun(log=log.text(), note=f"the tests exceeded their limit of {limit_s:g} s", timed_out=True)
    return await judge_run(
        task, output.report(), partial(read_file, test_session), log.text(), exit_code=end.code, signalled=end.signalled
    )


@asynccontextmanager
async def _tests_removed(test_session: SandboxSession, task: Task, *, wanted: bool) -> AsyncGenerator[None]:
    """Remove the tests from the container at the end of the block, if ``wanted``, or end the container.

    Then none of their processes runs, their folders and reports are empty, and what pytest and the shims created
    elsewhere is removed. A verdict that has been read is kept in any case.
    """
    try:
        yield
    finally:
        if wanted and test_session.alive:
            await asyncio.shield(_remove_tests(test_session, task))


async def _remove_tests(test_session: SandboxSession, task: Task) -> None:
    try:
        await kill_tests(test_session, task.grading)
        created = await _created_by_shims(test_session)
        for at in range(0, len(created), _CLEARED_AT_ONCE):
            await clear_paths(test_session, created[at : at + _CLEARED_AT_ONCE])
        for folder in folders_for_tests(task):
            await replace_path(test_session, f"{folder}/", mode=0o700, flags=FileFlag.REPLACE | FileFlag.CLEAR)
        for report in task.reports:
            await replace_path(test_session, report, mode=0o600)
    except (OSError, FileTooLarge, InfraError, SandboxDestroyed) as error:
        await test_session.destroy(
            SandboxDestroyed(f"the tests could not be removed from it: {error}", DestructionCause.TESTED)
        )


async def _created_by_shims(test_session: SandboxSession) -> list[str]:
    """Return the paths that the shims have created, as they recorded them."""
    try:
        noted = await read_file(test_session, CREATED_PATHS_FILE, _MAX_CREATED_BYTES)
    except FileNotFoundError:
        return []
    return [os.fsdecode(each) for each in dict.fromkeys(noted.split(b"\0")) if each.startswith(b"/")]


async def _write_tests(
    test_session: SandboxSession, task: Task, isolation: Isolation, canaries: Canaries | None
) -> str:
    """Write the tests, and an empty file for each report. Returns the reason if the agent's files prevent it."""
    user = test_session.tests_user
    files = {f"{TESTS_DIR}/{name}": data for name, data in files_for_tests(task, isolation).items()}
    try:
        for folder, mode in folders_for_tests(task).items():
            await replace_path(test_session, f"{folder}/", mode=mode)
        await write_files(test_session, {**files, _PYTEST_DIR: b""}, mode=0o700)
        if isolation is Isolation.TOOLCHAIN and mentions_path(task, _UV_ENVIRONMENT):
            installed = f"{user.home}/{_UV_ENVIRONMENT}"
            if user.is_root:
                await replace_path(test_session, installed)
            else:
                await touch(test_session, installed, user.process)
            await write_files(test_session, {CREATED_PATHS_FILE: installed.encode() + b"\0"}, mode=0o600)
        for report in task.reports:
            await replace_path(test_session, report, mode=0o600)
        secrets = canaries.files if canaries else {}
        await write_files(test_session, secrets, mode=0o600)
        if not user.is_root:
            given = (*folders_for_tests(task).keys() - {TEMPORARY_DIR}, *task.reports, *secrets)
            await give_paths(test_session, given, user.process)
    except OSError as error:
        return f"the tests could not be written into the container: {error.strerror}"
    return ""
