"""If these fail, a wrong number hangs a command forever, or makes a server spin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.cli.arguments import CommandArguments, Count, parse_arguments
from protocol.cli.exit_codes import EXIT_USER, main_guard
from protocol.errors import UserError
from protocol.integers import MAX_SAFE_INTEGER
from sandbox.images.__main__ import COMMAND as IMAGES
from sandbox.pool.settings import PoolSettings
from sandbox.router.__main__ import COMMAND as ROUTER
from sandbox.server.__main__ import COMMAND as SERVER
from sandbox.tasks.__main__ import COMMAND as TASKS

COMMANDS: list[tuple[Callable[[list[str]], int], str, list[str]]] = [
    (TASKS.call, "validate x --run --concurrency", ["0", "-1", "two", "1.5"]),
    (TASKS.call, "generate x --count", ["-1", "99999999999999999999"]),
    (TASKS.call, "generate x --held-out", ["9" * 5000]),
    (TASKS.call, "generate x --seed", ["-1", "99999999999999999999"]),
    (IMAGES.call, "build x --concurrency", ["0", "-2"]),
    (IMAGES.call, "prefetch x --concurrency", ["0"]),
    (IMAGES.call, "pull x --concurrency", ["0"]),
    (IMAGES.call, "prune --to-gb", ["nan", "-1", "inf"]),
    (SERVER.call, "--heartbeat-timeout-s", ["0", "-1", "nan", "inf", "0.001"]),
    (SERVER.call, "--max-lifetime-s", ["0"]),
    (SERVER.call, "--ttl-s", ["0"]),
    (SERVER.call, "--max-tasks", ["0"]),
    (SERVER.call, "--max-runs-per-task", ["0"]),
    (SERVER.call, "--warm", ["-1"]),
    (SERVER.call, "--port", ["-1", "65536"]),
    (SERVER.call, "--proxy-gb", ["-1", "nan"]),
    (ROUTER.call, "--servers http://x --port", ["70000"]),
    (ROUTER.call, "--servers http://x --forward-timeout-s", ["0"]),
]


@pytest.mark.parametrize(
    ("main", "words", "value"), [(main, words, value) for main, words, values in COMMANDS for value in values]
)
def test_an_invalid_number_is_refused_in_one_line_with_exit_code_2(
    main: Callable[[list[str]], int], words: str, value: str, capsys: pytest.CaptureFixture[str]
):
    line = words.split()
    assert main_guard(lambda: main([*line[:-1], f"{line[-1]}={value}"])) == EXIT_USER
    stderr = capsys.readouterr().err
    assert stderr.startswith(f"error: argument {line[-1]}: ")
    assert f"not '{value}'" in stderr or len(value) > 100
    assert stderr.count("\n") == 1


def test_an_invalid_number_from_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("WORKER_MAX_TASKS", "0")
    assert main_guard(lambda: SERVER.call([])) == EXIT_USER
    assert "argument --max-tasks: must be at least 1, not '0'" in capsys.readouterr().err


class CountedArguments(CommandArguments):
    """Count something."""

    count: Count = 0


def test_a_number_too_large_for_json_is_refused():
    """A seed with that many digits caused a traceback where the command wrote it."""
    with pytest.raises(UserError, match=f"at most {MAX_SAFE_INTEGER}, not '{2**53}'"):
        parse_arguments(CountedArguments, ["--count", str(2**53)], "counted")
    assert parse_arguments(CountedArguments, ["--count", str(2**53 - 1)], "counted").count == 2**53 - 1


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"start_concurrency": 0}])
def test_pool_settings_refuse_invalid_numbers(wrong: dict[str, int], tmp_path: Path):
    with pytest.raises(UserError):
        PoolSettings(**{"name": "p", "run_id": "r", "capacity": 1, **wrong})
