"""A slip in a number hangs a command for ever, or makes a server spin, when this fails."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.cli.exit_codes import EXIT_USER, main_guard
from protocol.cli.numbers import integer_between, number_at_least
from protocol.errors import UserError
from sandbox.images.__main__ import main as images
from sandbox.pool.settings import PoolSettings
from sandbox.router.__main__ import main as router
from sandbox.server.__main__ import main as server
from sandbox.tasks.__main__ import main as tasks

COMMANDS: list[tuple[Callable[[list[str]], int], str, list[str]]] = [
    (tasks, "validate x --run --at-once", ["0", "-1", "two", "1.5"]),
    (tasks, "generate x --count", ["-1", "99999999999999999999"]),
    (tasks, "generate x --held-out", ["9" * 5000]),
    (tasks, "generate x --seed", ["-1", "99999999999999999999"]),
    (images, "build x --concurrency", ["0", "-2"]),
    (images, "prefetch x --concurrency", ["0"]),
    (images, "pull x --concurrency", ["0"]),
    (images, "prune --to-gb", ["nan", "-1", "inf"]),
    (server, "--unattended-s", ["0", "-1", "nan", "inf", "0.001"]),
    (server, "--session-max-s", ["0"]),
    (server, "--lease-ttl-s", ["0"]),
    (server, "--max-tasks", ["0"]),
    (server, "--max-runs-per-task", ["0"]),
    (server, "--warm", ["-1"]),
    (server, "--port", ["-1", "65536"]),
    (server, "--proxy-gb", ["-1", "nan"]),
    (router, "--workers http://x --port", ["70000"]),
    (router, "--workers http://x --forward-timeout-s", ["0"]),
]


@pytest.mark.parametrize(
    ("main", "words", "value"), [(main, words, value) for main, words, values in COMMANDS for value in values]
)
def test_a_number_that_cannot_be_is_one_line_and_exit_code_2(
    main: Callable[[list[str]], int], words: str, value: str, capsys: pytest.CaptureFixture[str]
):
    line = words.split()
    assert main_guard(lambda: main([*line[:-1], f"{line[-1]}={value}"])) == EXIT_USER
    said = capsys.readouterr().err
    assert said.startswith(f"error: argument {line[-1]}: '{value}' is no")
    assert said.count("\n") == 1


def test_one_from_the_environment_is_no_better(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("WORKER_MAX_TASKS", "0")
    assert main_guard(lambda: server([])) == EXIT_USER
    assert "argument --max-tasks: '0' is no whole number of at least 1" in capsys.readouterr().err


def test_one_that_json_could_not_hold_is_no_better():
    """A seed of that many digits was a traceback where the command wrote it down."""
    with pytest.raises(ArgumentTypeError, match=f"is no whole number of 0 to {2**53 - 1}"):
        integer_between(0)(str(2**53))
    assert integer_between(0)(str(2**53 - 1)) == 2**53 - 1


def test_what_can_be_is_taken_as_it_is():
    assert (integer_between(0, 9)("0"), integer_between(0, 9)("9"), integer_between(1)("7")) == (0, 9, 7)
    assert (number_at_least(1)("1"), number_at_least(0)("0.5")) == (1.0, 0.5)


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"start_concurrency": 0}])
def test_a_pool_of_the_library_says_so_too(wrong: dict[str, int], tmp_path: Path):
    with pytest.raises(UserError):
        PoolSettings(**{"pool": "p", "run_id": "r", "capacity": 1, **wrong})
