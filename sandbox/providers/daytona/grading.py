"""Runs hidden tests in the agent's own Daytona sandbox, with the image's programs.

Before any test file is written, every process that did not exist before the agent is killed. The tests run in an
environment that the agent cannot influence, in a shell of their own; the verdict is read from their output and from
report files that were removed before. An agent with root may have replaced the image's programs
(:attr:`Isolation.IMAGE`).
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from functools import partial

from sandbox.errors import SandboxLost
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grading_run import GradingRun, judge_run
from sandbox.grading.hidden_tests import files_for_tests, folders_for_tests, script_path
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.isolation.environment import TESTS_DIR, build_test_environment
from sandbox.grading.results.marked_output import make_output_parser
from sandbox.providers.daytona.files import read_file, write_files
from sandbox.providers.daytona.handle import DaytonaHandle
from sandbox.providers.daytona.shell import DaytonaShell
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode

_MOST_OUTPUT_BYTES = 32 << 20
_KILLED = 128


async def grade_daytona_sandbox(
    machine: DaytonaHandle, task: Task, timeout_s: float | None, commands: Sequence[str], spared: Sequence[str]
) -> GradeResult:
    """Grade the sandbox; ``spared`` are the processes from before the agent. No shell of the agent survives.

    Raises SandboxLost.
    """
    began = time.perf_counter()
    await _kill_others(machine, spared)
    note = await _write_tests(machine, task)
    run = GradingRun(note=note)
    try:
        if not note:
            shell = DaytonaShell(machine, task.workdir)
            done = await shell.run(_command(task), timeout_s or task.test_timeout_s)
            await _kill_others(machine, spared)
            run = await _judge(machine, task, shell, done)
    finally:
        await _kill_others(machine, spared)
        await machine.call("remove", *folders_for_tests(task))
    return run.by_reward().result(
        task, commands, GradingLevel.SAME, Isolation.IMAGE, (time.perf_counter() - began) * 1000
    )


async def _kill_others(machine: DaytonaHandle, spared: Sequence[str]) -> None:
    if (await machine.call("kill-others", *spared)).code:
        raise SandboxLost(f"the agent's processes in sandbox {machine.id} cannot be killed")


async def _write_tests(machine: DaytonaHandle, task: Task) -> str:
    """Write the tests into the sandbox. Returns the reason if the agent prevents it."""
    for folder, mode in folders_for_tests(task).items():
        if (await machine.call("folder", f"{mode:o}", folder)).code:
            return f"the tests' folder {folder} cannot be created"
    if task.reports:
        await machine.call("remove", *task.reports)
    files = {f"{TESTS_DIR}/{name}": data for name, data in files_for_tests(task, Isolation.IMAGE).items()}
    try:
        await write_files(machine, files, 0o700)
    except OSError as error:
        return f"the tests could not be written into the sandbox: {error.strerror}"
    return ""


def _command(task: Task) -> str:
    """Build the command in a subshell, so that its shell survives to report the exit."""
    offline = task.network.verify is NetworkMode.NONE
    env = build_test_environment({**task.env, **task.test_env}, {}, Isolation.IMAGE, (task.workdir,), offline=offline)
    first = task.run_tests.split("\n", 1)[0].strip()
    interpreter = shlex.split(first[2:]) if first.startswith("#!") else ["bash"]
    assignments = " ".join(shlex.quote(f"{name}={value}") for name, value in env.items())
    command = f"{shlex.join(interpreter)} {script_path(task)}"
    return f"cd {shlex.quote(task.workdir)}; (exec env -i {assignments} {command})"


async def _judge(machine: DaytonaHandle, task: Task, shell: DaytonaShell, done: CommandResult) -> GradingRun:
    if done.timed_out or done.exit_code is None:
        return GradingRun(log=done.output, note="the tests exceeded their time limit", timed_out=done.timed_out)
    try:
        output = await read_file(machine, shell.file, _MOST_OUTPUT_BYTES)
    except OSError as error:
        return GradingRun(log=done.output, note=f"the tests' output cannot be read: {error.strerror}")
    parser = make_output_parser(task.results_format, alone=not task.reports)
    parser.feed(output)
    killed = done.exit_code > _KILLED
    read = partial(read_file, machine)
    return await judge_run(task, parser.report(), read, done.output, exit_code=done.exit_code, signalled=killed)
