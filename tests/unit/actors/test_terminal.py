"""If these fail, an agent that kills its container again and again is never charged for it, or an innocent one is."""

from __future__ import annotations

import pytest

from actors.episode import SandboxGone
from actors.terminal import SandboxTerminal
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxVanished
from sandbox.tasks.task import Task

VANISHED = SandboxVanished("nothing says why")


class FakeEndingSession:
    """Ends, with the same error, whatever is asked of it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def run(self, command: str, timeout_s: float, on_output: object) -> None:
        raise self.error

    def request(self, build: object) -> None: ...

    async def answered(self, request: None, timeout_s: float) -> None:
        raise self.error


def terminal(error: Exception, *, vanished_before: bool) -> SandboxTerminal:
    task = Task(id="t", instruction="list", expected_tests=("a",))
    return SandboxTerminal(FakeEndingSession(error), task, 5, 5, 1000, vanished_before)


@pytest.mark.parametrize(
    ("error", "vanished_before", "expected"),
    [
        (SandboxDestroyed("out of memory"), False, SandboxGone),
        (VANISHED, False, SandboxVanished),
        (VANISHED, True, SandboxGone),
        (SandboxLost("the daemon does not answer"), True, SandboxLost),
    ],
)
async def test_an_agent_is_charged_on_evidence_or_for_the_second_unexplained_loss(
    error: Exception, vanished_before: bool, expected: type[Exception]
) -> None:
    with pytest.raises((SandboxGone, SandboxLost)) as caught:
        await terminal(error, vanished_before=vanished_before).call(
            "shell_exec", {"id": "main", "command": "true"}, print
        )
    assert type(caught.value) is expected


async def test_an_agent_that_has_not_acted_yet_is_innocent() -> None:
    with pytest.raises(SandboxVanished):
        await terminal(VANISHED, vanished_before=True).grade()
