"""If these fail, a script that reads a command's ``--json`` object finds none just when something went wrong."""

from __future__ import annotations

import pytest

from protocol.cli.exits import EXIT_USER
from tests.support.commands import run_json

COMMANDS = (
    "launch.cluster",
    "launch.steer RUN pause",
    "launch.replay RUN",
    "launch.monitor RUN",
    "launch.simulate",
    "launch.bench chaos",
    "protocol.journal check RUN",
    "sandbox.images list",
    "sandbox.kit build",
    "sandbox.stress",
    "sandbox.tasks validate RUN",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_option_is_one_object_and_one_line(command: str) -> None:
    done = run_json(*command.split(), "--bogus")
    assert (done.code, done.said["exit_code"]) == (EXIT_USER, EXIT_USER)
    assert "--help" in done.said["error"]
    assert done.stderr == f"error: {done.said['error']}\n"


@pytest.mark.parametrize(
    "command",
    [
        "launch.steer /nowhere pause",
        "protocol.journal check /nowhere",
        "sandbox.stress --sessions 0",
        "sandbox.tasks list /nowhere",
    ],
)
def test_what_cannot_be_done_is_one_object_and_one_line(command: str) -> None:
    done = run_json(*command.split())
    assert (done.code, done.said["exit_code"]) == (EXIT_USER, EXIT_USER)
    assert done.stderr == f"error: {done.said['error']}\n"
