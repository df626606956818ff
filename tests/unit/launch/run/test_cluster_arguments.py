"""The command line says the same as the recipe, and a slip is answered with what to type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.cli import VERBS
from launch.config.command_line import DEFAULT_RECIPE, NEWEST_RUN
from launch.run.arguments import parse_cluster_arguments
from launch.settings.run import NegativeControl
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USER, main_guard
from protocol.dependencies import longshore_version
from protocol.errors import LongshoreError, UserError
from protocol.staleness import AdmissionMode


def test_options_override_the_recipe_and_set_overrides_options() -> None:
    line = "demo --nodes 8 --seed 3 --steps 5 --mode sync --negative-control lr0 --no-monitor --set run.steps=7"
    parsed = parse_cluster_arguments(line.split())
    config = parsed.load_config()
    assert (config.cluster.nodes, config.run.seed, config.run.steps) == (8, 3, 7)
    assert (config.run.mode, config.run.negative_control, config.monitor.enabled) == (
        AdmissionMode.SYNC,
        NegativeControl.LR0,
        False,
    )


def test_a_model_of_the_user_gets_tools_in_its_prompt_and_no_warm_start() -> None:
    config = parse_cluster_arguments(["demo", "--model", '/models/my "qwen"']).load_config()
    assert config.model.path == Path('/models/my "qwen"')
    assert not config.warm_start.enabled
    assert config.agent.tools
    assert (
        not parse_cluster_arguments(["demo", "--model", "/m", "--set", "agent.tools=false"]).load_config().agent.tools
    )


def test_resume_takes_a_run_or_the_newest() -> None:
    assert parse_cluster_arguments(["--resume"]).resume == NEWEST_RUN
    assert parse_cluster_arguments(["--resume", "demo-1", "demo"]).resume == "demo-1"
    assert parse_cluster_arguments(["demo"]).resume is None


def test_the_documented_command_without_a_recipe_runs_the_demo() -> None:
    """`longshore cluster --nodes 8`: without a recipe it is the demo, and the first line says so."""
    parsed = parse_cluster_arguments(["--nodes", "8"])
    assert (parsed.recipe_name, parsed.is_default_recipe, parsed.load_config().cluster.nodes) == (
        DEFAULT_RECIPE,
        True,
        8,
    )
    words = [sys.executable, "-m", "launch.cluster", "--nodes", "8", "--dry-run"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[0].startswith("no recipe named: running 'demo' (others: ")


@pytest.mark.parametrize("resume", [["--resume"], ["--resume", "mine"]])
def test_the_same_command_with_resume_goes_on_with_the_run_that_it_named(resume: list[str]) -> None:
    parsed = parse_cluster_arguments(["demo", "--run-id", "mine", *resume])
    assert (parsed.resumed_run, parsed.new_run_id) == ("mine", None)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("demo --stepps 3", "did you mean '--steps'"),
        ("demo --mode fast", "'fast' is not one of sync, one_step_off, async"),
        ("demo --nodes many", "argument --nodes: must be a valid integer"),
        ("--resume a --run-id b", "name two runs"),
        ("demo --nodes 8 --address=", "--address is empty"),
        ("demo --proof --negative-control lr0", "leave --negative-control out"),
        ("--proof --resume", "leave one of them out"),
        ("--proof --resume demo", "leave one of them out"),
        ("demo --proof --dry-run", "leave one of them out"),
    ],
)
def test_an_invalid_option_is_a_user_error(line: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_cluster_arguments(line.split())
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("demo --nodes 0", "--nodes: must be at least"),
        ("demo --set rollout.group_size=four", "--set rollout.group_size: must be a valid integer"),
        ("demo --nodes 8 --set cluster.nodes=0", "--set cluster.nodes: must be at least"),
        ("demo --set data.kind=harbur", "data.kind = 'harbur' is not a kind of tasks"),
    ],
)
def test_a_wrong_value_is_named_as_it_was_typed(line: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_cluster_arguments(line.split()).load_config()
    assert str(caught.value).startswith(says)


def _raise(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("mend it"), EXIT_USER),
        (LongshoreError("broke"), EXIT_FAILED),
        (KeyboardInterrupt(), EXIT_INTERRUPTED),
        (ExceptionGroup("tasks", [LongshoreError("broke"), UserError("mend it")]), EXIT_USER),
        (BaseExceptionGroup("tasks", [LongshoreError("broke"), KeyboardInterrupt()]), EXIT_INTERRUPTED),
        (ExceptionGroup("tasks", [ExceptionGroup("deeper", [LongshoreError("broke")])]), EXIT_FAILED),
    ],
)
def test_a_failed_command_prints_one_line_and_returns_its_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_guard(lambda: _raise(error)) == code
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        main_guard(lambda: 1 // 0)
    with pytest.raises(ExceptionGroup):
        main_guard(lambda: _raise(ExceptionGroup("tasks", [LongshoreError("broke"), ZeroDivisionError()])))


def test_success_is_zero() -> None:
    assert main_guard(lambda: None) == EXIT_OK


JSON_COMMAND = """
import atexit, subprocess, sys
from protocol.cli.exit_codes import main_guard
from protocol.cli.output import JsonOutput
from protocol.errors import UserError

def main():
    atexit.register(print, "from a library, at exit")
    with JsonOutput(sys.argv[1] == "json") as out:
        print("from python")
        subprocess.run(["echo", "from a child"], check=True)
        out.set_result({"steps": 3})
        if sys.argv[2] == "fail":
            raise UserError("no Docker: run make setup")

sys.exit(main_guard(main))
"""


def _run_json_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", JSON_COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_json_output_is_exactly_one_object_despite_other_output() -> None:
    done = _run_json_command("json", "succeed")
    assert json.loads(done.stdout) == {"steps": 3}
    assert all(noise in done.stderr for noise in ("from python", "from a child", "at exit"))
    assert done.returncode == EXIT_OK


def test_json_reports_the_error_that_ended_the_command() -> None:
    done = _run_json_command("json", "fail")
    assert json.loads(done.stdout) == {"error": "no Docker: run make setup", "exit_code": EXIT_USER}
    assert done.returncode == EXIT_USER


def test_json_with_help_is_the_help_and_no_object() -> None:
    command = [sys.executable, "-m", "launch.cluster", "--json", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert "usage: longshore cluster" in done.stdout


STUCK_COMMAND = """
import asyncio, os, signal
from launch.processes.interruption import run_interruptible
from protocol.cli.output import JsonOutput

async def stuck():
    while True:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

with JsonOutput(True) as out:
    asyncio.run(run_interruptible(stuck(), "demo-1"))
"""


STUCK_THREAD = """
import asyncio, os, signal, threading, time
from launch.processes.interruption import run_interruptible

def busy():
    os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    time.sleep(600)

asyncio.run(run_interruptible(asyncio.to_thread(busy), "demo-1"))
"""


UNHEARD = """
import asyncio, os, signal
from launch.processes.interruption import run_interruptible
from protocol.cli.exit_codes import main_guard
from protocol.cli.output import error_console

async def work():
    for _ in range(2):
        error_console().print("nobody reads this")
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(600)

raise SystemExit(main_guard(lambda: asyncio.run(run_interruptible(work(), "demo-1"))))
"""


def test_an_interrupt_stops_a_run_with_a_closed_output_pipe() -> None:
    """``make demo 2>&1 | tee log``: Ctrl-C ends tee too, and the run would go on unseen."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", UNHEARD], stderr=writer, check=False, timeout=300)
    os.close(writer)
    assert done.returncode == EXIT_INTERRUPTED


def test_a_second_interrupt_does_not_wait_for_a_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK_THREAD], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == EXIT_INTERRUPTED
    assert "press Ctrl-C again to stop at once" in done.stderr


def test_a_second_interrupt_ends_at_once_and_json_is_still_one_object() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK_COMMAND], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_INTERRUPTED
    assert json.loads(done.stdout) == {"error": "interrupted", "exit_code": EXIT_INTERRUPTED}


def test_without_json_no_object_is_printed() -> None:
    assert "steps" not in _run_json_command("text", "succeed").stdout


def test_the_console_command_lists_and_suggests() -> None:
    listed = _call_console_command()
    assert listed.stderr == ""
    assert all(name in listed.stdout for name in [*VERBS, "--version"])
    for word, kind, meant in (("clutser", "command", "cluster"), ("--verison", "option", "--version")):
        wrong = _call_console_command(word)
        assert wrong.returncode == EXIT_USER
        assert wrong.stderr.startswith(f"error: longshore has no {kind} '{word}'")
        assert wrong.stderr.endswith(f"did you mean '{meant}'?\n")


def test_the_console_command_prints_one_object_if_asked() -> None:
    assert json.loads(_call_console_command("--json").stdout)["commands"].keys() == VERBS.keys()
    for words in (["--version", "--json"], ["--json", "--version"], ["--json", "runs", "--version"]):
        assert json.loads(_call_console_command(*words).stdout)["version"] == longshore_version()
    for words in (["clutser", "--json"], ["--json", "clutser"]):
        failed = json.loads(_call_console_command(*words).stdout)
        assert failed["exit_code"] == EXIT_USER
        assert failed["error"].endswith("did you mean 'cluster'?")


def _call_console_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "launch.cli", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["launch.cluster", "sandbox.stress"])
def test_a_python_without_the_packages_names_the_environment_that_has_them(command: str) -> None:
    """The commands of the README, typed before the environment is activated."""
    bare = [sys.executable, "-S", "-m", command, "--help"]  # without site-packages
    done = subprocess.run(bare, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4], timeout=300)
    assert done.returncode == EXIT_USER
    assert "does not have longshore's packages" in done.stderr
    assert ".venv" in done.stderr
    assert done.stderr.count("\n") == 1
