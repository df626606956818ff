"""If these fail, a harness starts with other settings than its record's, or with a changed instruction."""

from __future__ import annotations

import subprocess
from string import Template

import pytest

from actors.harnesses.catalog import PUBLISHED_HARNESSES
from actors.harnesses.published_harness import PublishedHarness
from actors.harnesses.start_command import start_command
from actors.rollout.harness import harness_environment
from actors.rollout.settings import EpisodeSettings
from sandbox.tasks.task import Task
from sandbox.toolchain.in_container.layout import BUSYBOX

TASK = Task("t", 'it\'s "a" $task `id`')
SETTINGS = EpisodeSettings(context_tokens=65_432, max_new_tokens=1_234)
ENVIRONMENT = harness_environment("http://127.0.0.1:3129", "key", "policy", TASK, SETTINGS)
EVERY = pytest.mark.parametrize("harness", PUBLISHED_HARNESSES.values(), ids=PUBLISHED_HARNESSES.keys())


def run(command: str) -> str:
    """Run a command on this machine, which has no toolchain."""
    command = command.replace(BUSYBOX, "")
    return subprocess.run(("bash", "-s"), input=command, capture_output=True, text=True, check=True).stdout


def test_a_command_of_ones_own_gets_the_instruction_as_it_is() -> None:
    assert run(start_command('printf %s "$LONGSHORE_INSTRUCTION"', ENVIRONMENT)) == 'it\'s "a" $task `id`'


def test_an_instruction_that_no_environment_can_hold_is_read_by_the_command() -> None:
    environment = ENVIRONMENT | {"LONGSHORE_INSTRUCTION": "é" * 100_000}
    assert run(start_command('printf %s "$LONGSHORE_INSTRUCTION" | wc -c; env true', environment)) == "200000\n"


@EVERY
def test_a_published_harness_starts_with_its_settings_in_a_new_folder_that_does_not_stay(
    harness: PublishedHarness,
) -> None:
    command = start_command(harness.name, ENVIRONMENT)
    assert harness.command in command
    shown = 'cat; echo; echo "$HARNESS_HOME"; env; cd "$HARNESS_HOME" && find . -type f -exec cat {} +; exit 3'
    command = command.replace(harness.command, f"({shown})")
    output = run(f"{command}; echo exit code $?; ls -d /tmp/harness-* 2>&1; true")
    assert output.startswith('it\'s "a" $task `id`\n')
    home = output.splitlines()[1]
    assert home.startswith("/tmp/harness-")
    assert "exit code 3" in output
    assert home not in output.rpartition("exit code 3")[2], "its folder stayed"
    known = {**ENVIRONMENT, "HARNESS_HOME": home, "HARNESS_BIN": "/.hns/bin"}
    for text in (*harness.environment.values(), *harness.files.values()):
        assert Template(text).substitute(known) in output


@EVERY
def test_a_record_leaves_room_for_work_beside_its_prompt(harness: PublishedHarness) -> None:
    assert harness.prompt_tokens * 1.5 < harness.context_tokens
