"""If these fail, a script that reads a command's ``--json`` object finds none just when something went wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic.fields import FieldInfo
from tyro.conf import subcommand

from launch.cli import VERBS
from protocol.cli.arguments import (
    CommandArguments,
    JsonFlag,
    format_completion,
    format_help,
    option_name,
    parse_arguments,
    subcommands,
)
from protocol.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OUTPUT_CLOSED, EXIT_USER
from protocol.cli.output import error_console
from protocol.errors import UserError
from tests.support.commands import call_json, run_json

COMMANDS = (
    "launch.cluster",
    "launch.evaluation.evaluate demo --noop --tasks RUN",
    "launch.control.ctl RUN pause",
    "launch.replay RUN",
    "launch.evaluation.compare A B",
    "launch.export RUN",
    "launch.data get http://BUCKET",
    "launch.sft",
    "launch.monitor RUN",
    "launch.doctor",
    "launch.plan demo",
    "launch.trace RUN",
    "launch.exporters RUN",
    "launch.simulate",
    "launch.sweep demo",
    "launch.templates slurm --nodes 1",
    "launch.bench chaos",
    "launch.bench engine",
    "launch.bench weights",
    "protocol.journal check RUN",
    "sandbox.images list",
    "sandbox.toolchain build",
    "sandbox.stress",
    "sandbox.tasks validate RUN",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_option_prints_one_json_object_and_one_line(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = call_json(capfd, *command.split(), "--bogus")
    assert (done.exit_code, done.output["exit_code"]) == (EXIT_USER, EXIT_USER)
    assert "--help" in done.output["error"]
    assert done.stderr == f"error: {done.output['error']}\n"


@pytest.mark.parametrize(
    "command",
    [
        "launch.bench weights --updates 0",
        "launch.evaluation.evaluate demo",
        "launch.evaluation.evaluate demo --noop --tasks /nowhere",
        "launch.evaluation.evaluate demo --model /nowhere --tasks /nowhere",
        "launch.evaluation.evaluate nowhere --oracle --tasks /nowhere",
        "launch.evaluation.compare /nowhere",
        "launch.plan --from /nowhere --scenario small",
        "launch.evaluation.compare /nowhere /neither",
        "launch.export /nowhere",
        "launch.data get nowhere",
        "launch.replay /nowhere/train-g000000-s00",
        "launch.replay /nowhere/at/all/0",
        "launch.sft --data /nowhere.jsonl",
        "launch.sweep demo",
        "launch.sweep nowhere",
        "launch.sweep demo --axis run.sed=0,1",
        "launch.sweep demo --axis learner.eps_low=0.2,3",
        "launch.sweep demo --evaluate --axis temperature=0.5,1",
        "launch.templates slurm --nodes 1 -- nowhere",
        "launch.control.ctl /nowhere status",
        "launch.control.ctl /nowhere pause",
        "protocol.journal check /nowhere",
        "sandbox.stress --sessions 0",
        "sandbox.tasks list /nowhere",
    ],
)
def test_a_user_error_prints_one_json_object_and_one_line(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = call_json(capfd, *command.split())
    assert (done.exit_code, done.output["exit_code"]) == (EXIT_USER, EXIT_USER)
    assert done.stderr == f"error: {done.output['error']}\n"


def test_an_argument_that_is_not_utf_8_prints_one_json_object_and_one_line() -> None:
    done = run_json("launch.cluster", "--run-id", "a\udcff")
    assert (done.exit_code, done.output["exit_code"]) == (EXIT_USER, EXIT_USER)
    assert r"'a\udcff' on the command line is not UTF-8" in done.output["error"]


def test_brackets_are_printed_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A malformed task's own words would end the run that leaves it out."""
    error_console().print("left out: task[old]: volumes [/a]:/b")
    assert capsys.readouterr().err == "left out: task[old]: volumes [/a]:/b\n"


class InnerArguments(CommandArguments):
    """Do something."""

    as_json: JsonFlag = False


class OuterArguments(CommandArguments):
    """Do something below."""

    command: Annotated[InnerArguments, subcommand("chaos")] | Annotated[InnerArguments, subcommand("order")]


@pytest.mark.parametrize(("model", "words"), [(InnerArguments, ["--js"]), (OuterArguments, ["chaos", "--js"])])
def test_abbreviated_options_are_refused(model: type[CommandArguments], words: list[str]) -> None:
    """A command that took ``--js`` for ``--json`` would do its work and print no object."""
    with pytest.raises(UserError, match="did you mean '--json'"):
        parse_arguments(model, words, "test")


MODULES = {verb.module for verb in VERBS.values()}


@pytest.mark.parametrize("name", VERBS)
def test_a_command_calls_itself_by_its_name(name: str) -> None:
    """A hint that names another program than the one that was typed sends its reader into the docs."""
    assert VERBS[name].load_command().verb == name


def placeholder(field: FieldInfo, name: str) -> str:
    """Return the usage line's word for a positional argument."""
    words = name + (" ..." if str(field.annotation).startswith("tuple") else "")
    return words if field.is_required() else f"[{words}]"


@pytest.mark.parametrize("name", VERBS)
def test_the_usage_line_shows_optional_arguments(name: str) -> None:
    """Otherwise a newcomer would look for a recipe, or a run, that the command does not need."""
    arguments = VERBS[name].load_command().arguments
    inner = subcommands(arguments)
    for model, words in [(arguments, list[str]()), *((model, [word]) for word, model in inner.items())]:
        usage = format_help(arguments, f"longshore {name}", words).splitlines()[0]
        for key, field in model.model_fields.items():
            spelled = option_name(model, key)
            if key not in {"action", "shell"} and not spelled.startswith("--") and spelled not in inner:
                assert f" {placeholder(field, spelled)}" in f"{usage} ", usage


def test_only_commands_that_fetch_have_options_of_the_egress_proxy() -> None:
    arguments = VERBS["images"].load_command().arguments
    helps = {name: format_help(arguments, "longshore images", [name]) for name in subcommands(arguments)}
    without = {name for name, text in helps.items() if "--allow-host" not in text}
    assert without == {"import", "list", "load", "prune", "pull"}


@pytest.mark.first_case
@pytest.mark.parametrize(("name", "encoding"), [("runs", "utf-8"), ("tasks", "ascii"), ("cluster", "ascii")])
def test_help_and_version_are_on_standard_output(name: str, encoding: str) -> None:
    """``longshore runs --help | less`` would be empty, and in an ASCII terminal a traceback."""
    env = os.environ | {"PYTHONIOENCODING": encoding}
    for option, expected in (("--help", f"usage: longshore {name}"), ("--version", "longshore ")):
        done = subprocess.run(
            [sys.executable, "-m", VERBS[name].module, option], capture_output=True, text=True, env=env, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout


def test_results_are_printed_to_standard_output(tmp_path: Path) -> None:
    """``longshore runs list > file`` would write an empty file."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    words = [sys.executable, "-m", "sandbox.tasks", "generate", str(tmp_path / "tasks"), "--count", "1"]
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=True)
    assert (done.stdout.count("1 task written"), done.stderr) == (1, "")


@pytest.fixture(scope="module")
def bash_completion() -> str:
    return completion_script("bash")


def completion_script(shell: str) -> str:
    return format_completion("longshore", {name: verb.load_command().arguments for name, verb in VERBS.items()}, shell)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("clu", {"cluster"}),
        ("--ver", {"--version"}),
        ("cluster demo --step", {"--steps"}),
        ("cluster --mode s", {"sync"}),
        ("cluster de", {"demo"}),
        ("ctl demo-1 pa", {"pause"}),
        ("tasks convert --to har", {"harbor"}),
        ("tasks list doc", set()),
    ],
)
def test_bash_completes_what_is_typed(bash_completion: str, typed: str, completed: set[str]) -> None:
    words = ["longshore", *typed.split()]
    script = f"""{bash_completion}
COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _tyro_longshore
printf '%s\\n' ${{#COMPREPLY[@]}} "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert (set(done.stdout.split()), done.stderr) == (completed | {str(len(completed))}, "")


@pytest.mark.parametrize(("shell", "escaped"), [("zsh", ""), ("fish", '\\$"')])
def test_the_python_in_a_completion_script_is_valid(shell: str, escaped: str) -> None:
    """Each TAB would print its SyntaxError."""
    script = completion_script(shell)
    code = script[script.index("COMPLETION_SPEC = ") : script.index("main()", script.index("if __name__ ==")) + 6]
    for character in escaped:
        code = code.replace(f"\\{character}", character)
    found: dict[str, Any] = {}
    exec(compile(code, shell, "exec"), found)  # noqa: S102  the script's own code, without its call of main()
    assert found["get_completions"](["longshore", "cluster", "--mode", "s"], 3, found["COMPLETION_SPEC"])


def test_every_command_module_belongs_to_longshore() -> None:
    """A program of the docs that ``longshore`` does not know would have to be looked for."""
    named = {"launch.cluster", "launch.monitor", "launch.bench", "sandbox.stress", "sandbox.server", "sandbox.tasks"}
    assert named | {"sandbox.host", "sandbox.images", "sandbox.router", "protocol.journal"} <= MODULES


BUFFERED = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}


@pytest.fixture
def unread() -> Generator[int]:
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def write_empty_task(folder: Path) -> None:
    """Write a task of which there is something to say."""
    (folder / "task").mkdir()
    (folder / "task" / "task.toml").touch()


@pytest.mark.first_case
@pytest.mark.parametrize("buffered", [True, False], ids=["buffered", "at once"])
@pytest.mark.parametrize("both", [False, True], ids=["output", "errors too"])
@pytest.mark.parametrize("command", ["list", "validate", "validate --json"])
def test_a_command_with_closed_output_ends_without_a_traceback(
    tmp_path: Path, unread: int, command: str, both: bool, buffered: bool
) -> None:
    """``longshore … | head`` would end in a traceback."""
    write_empty_task(tmp_path)
    where = unread if both else subprocess.PIPE
    env = BUFFERED if buffered else BUFFERED | {"PYTHONUNBUFFERED": "1"}
    line = [sys.executable, "-m", "sandbox.tasks", *command.split(), str(tmp_path)]
    done = subprocess.run(line, stdout=unread, stderr=where, env=env, check=False)
    assert done.returncode == EXIT_OUTPUT_CLOSED
    assert b"Traceback" not in (done.stderr or b"")
    assert b"Exception ignored" not in (done.stderr or b"")


SAYS = """
import os, sys
from protocol.cli.exit_codes import main_guard
from protocol.errors import UserError

def help():
    print("usage")
    sys.exit(0)

def mistake():
    print("begun")
    raise UserError("mend it")

def other_pipe():
    print("begun")
    reader, writer = os.pipe()
    os.close(reader)
    os.write(writer, b"x")

sys.exit(main_guard(locals()[sys.argv[1]]))
"""


@pytest.mark.parametrize(
    ("does", "code", "message"), [("help", EXIT_OUTPUT_CLOSED, ""), ("mistake", EXIT_USER, "error: mend it\n")]
)
def test_other_errors_are_still_printed_when_standard_output_is_closed(
    unread: int, does: str, code: int, message: str
) -> None:
    line = [sys.executable, "-c", SAYS, does]
    done = subprocess.run(line, stdout=unread, stderr=subprocess.PIPE, text=True, env=BUFFERED, check=False)
    assert (done.returncode, done.stderr) == (code, message)


def test_a_broken_pipe_elsewhere_keeps_its_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", SAYS, "other_pipe"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert "BrokenPipeError" in done.stderr


@pytest.mark.parametrize("command", ["validate", "validate --json"])
def test_a_full_disk_under_standard_output_is_one_error(tmp_path: Path, command: str) -> None:
    write_empty_task(tmp_path)
    line = [sys.executable, "-m", "sandbox.tasks", *command.split(), str(tmp_path)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, env=BUFFERED, check=False)
    assert done.returncode == EXIT_USER
    assert done.stderr.endswith("error: standard output cannot be written: No space left on device\n")
    assert "Traceback" not in done.stderr


WAITS = """
import asyncio, sys
from protocol.cli.exit_codes import main_guard

async def work():
    try:
        print("begun", flush=True)
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0)
        print("put in order", flush=True)

sys.exit(main_guard(lambda: asyncio.run(work())))
"""


@pytest.mark.parametrize("deaf", [False, True], ids=["in front", "in a background job"])
def test_a_terminated_command_cleans_up(deaf: bool) -> None:
    """Otherwise a kill, a batch system or a container's end would leave processes and temporary files behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if deaf else None
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        output, stderr = process.communicate(timeout=120)
    assert (process.returncode, output, stderr) == (EXIT_INTERRUPTED, "put in order\n", "interrupted\n")
