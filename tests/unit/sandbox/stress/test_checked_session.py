"""If these fail, a stress run passes although answers were wrong or lost."""

from __future__ import annotations

import asyncio
import re

import pytest

from protocol.errors import UserError, iterate_leaf_errors
from sandbox.docker.engine import DockerEngine
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.leaks import wait_for_leaks
from sandbox.errors import SandboxLost
from sandbox.session.shell import CommandResult
from sandbox.stress.checked_session import CheckedSession, UnansweredCommandError
from sandbox.stress.command_load import CommandLoad
from sandbox.stress.concurrency import for_each
from sandbox.stress.phases import StressContext
from sandbox.stress.report import StressReport

RUN = "0123abcd"


class FakeHeldSandbox:
    """Evaluates nothing: writes the ledger and gives configured answers."""

    container = engine_url = ""
    alive = True

    def __init__(self) -> None:
        self.ledger: list[str] = []
        self.output = "{nonce}\n"
        self.exit_code: int | None = 0
        self.executions = 1
        self.lost_after = 1 << 30
        self.ran = 0

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        await asyncio.sleep(0)
        self.ran += 1
        if self.ran > self.lost_after:
            raise SandboxLost("gone")
        found = re.search(r"nonce-\S+-end", command)
        assert found is not None
        if ">>" in command:
            self.ledger += [found[0]] * self.executions
        return CommandResult(self.output.format(nonce=found[0]), 0, self.exit_code, False, 1.0, False)

    async def read_file(self, path: str) -> bytes:
        if not self.ledger:
            raise FileNotFoundError(path)
        return "\n".join(self.ledger).encode()

    async def reattach(self) -> None: ...

    async def close(self) -> None: ...


def talking() -> tuple[CheckedSession, FakeHeldSandbox, StressReport]:
    sandbox, report = FakeHeldSandbox(), StressReport(sessions=1)
    return CheckedSession(sandbox, report, RUN, 0), sandbox, report


async def test_right_answers_are_counted_and_the_ledger_agrees():
    checked, _, report = talking()
    await checked.echo()
    await checked.run_checked("true")
    await checked.check_ledger()
    assert (report.commands, report.wrong_answers) == (2, 0)


@pytest.mark.parametrize("output", ["", "{nonce}\n{nonce}\n", f"nonce-{RUN}-9-1-end\n", "x{nonce}\n"])
async def test_an_echo_must_be_exactly_its_nonce(output: str):
    checked, sandbox, report = talking()
    sandbox.output = output
    await checked.echo()
    assert report.wrong_answers == 1


@pytest.mark.parametrize("output", ["", "{nonce}\n{nonce}\n", f"nonce-{RUN}-9-1-end\n{{nonce}}\n"])
async def test_lost_duplicated_and_foreign_answers_are_wrong(output: str):
    checked, sandbox, report = talking()
    sandbox.output = output
    await checked.run_checked("true")
    assert report.wrong_answers == 1


@pytest.mark.parametrize("executions", [0, 2])
async def test_a_command_that_ran_twice_or_not_at_all_is_found_in_the_ledger(executions: int):
    checked, sandbox, report = talking()
    sandbox.executions = executions
    await checked.run_checked("true")
    await checked.check_ledger()
    assert report.wrong_answers == 1


async def test_a_killed_command_does_not_count_as_an_answer():
    checked, sandbox, report = talking()
    sandbox.exit_code = None
    with pytest.raises(UnansweredCommandError):
        await checked.run_checked("true")
    assert (report.commands, report.wrong_answers) == (0, 0)


async def test_resumed_counts_cover_commands_sent_by_another_process():
    checked, sandbox, report = talking()
    sandbox.ledger = [f"nonce-{RUN}-0-1-end", f"nonce-{RUN}-0-2-end"]
    checked.resume_counts(sent=2, answered=1)
    await checked.run_checked("true")
    await checked.check_ledger()
    assert report.wrong_answers == 0


async def test_a_session_lost_under_load_is_a_failure_and_the_others_continue():
    report = StressReport(sessions=2)
    sandboxes = [FakeHeldSandbox(), FakeHeldSandbox()]
    sandboxes[0].lost_after = 1
    checked_sessions = [CheckedSession(sandbox, report, RUN, number) for number, sandbox in enumerate(sandboxes)]
    stress = StressContext(report, None, RUN, 1)  # a load opens nothing
    await CommandLoad(stress, ("true",), 0.0).run(checked_sessions, lambda: sandboxes[1].ran >= 5)
    assert report.failures == 1
    assert sandboxes[1].ran == 5
    assert len(report.load_ms) == report.commands == 6


async def test_items_are_started_in_order_up_to_the_concurrency_limit():
    running, most, order = 0, 0, []

    async def one(item: int) -> None:
        nonlocal running, most
        order.append(item)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await for_each(range(10), one, 3)
    assert order == list(range(10))
    assert most == 3


def test_errors_in_nested_exception_groups_are_found():
    inner = ExceptionGroup("inner", [UserError("a"), SandboxLost("b")])
    assert [str(leaf) for leaf in iterate_leaf_errors(ExceptionGroup("outer", [inner, SandboxLost("c")]))] == [
        "a",
        "b",
        "c",
    ]


class ContainerlessEngine(DockerEngine):
    """Returns one inventory after another, and repeats the last one."""

    def __init__(self, *inventories: DockerInventory) -> None:
        super().__init__("unix:///none")
        self._inventories = list(inventories)

    async def inventory(self) -> DockerInventory:
        return self._inventories.pop(0) if len(self._inventories) > 1 else self._inventories[0]


def having(*containers: str) -> DockerInventory:
    return DockerInventory(frozenset(containers), frozenset(), frozenset())


async def test_a_removal_in_progress_is_not_a_leak():
    assert await wait_for_leaks(ContainerlessEngine(having("a", "b", "c"), having("a")), having("a")) == having()


async def test_remaining_containers_are_leaks_except_those_kept_warm():
    async def kept() -> int:
        return 2

    there = having("a", "b", "c")
    assert await wait_for_leaks(ContainerlessEngine(there), having("a"), patience_s=-1) == having("b", "c")
    assert await wait_for_leaks(ContainerlessEngine(there), having("a"), patience_s=-1, count_reserved=kept) == having()
    assert await wait_for_leaks(ContainerlessEngine(there), having(), patience_s=-1, count_reserved=kept) == having("c")


async def test_containers_of_another_run_are_not_leaks_of_this_one():
    async def apart() -> DockerInventory:
        return having("b")

    assert await wait_for_leaks(
        ContainerlessEngine(having("a", "b", "c")), having("a"), patience_s=-1, list_others=apart
    ) == having("c")
