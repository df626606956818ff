"""Names, replies and messages of others reach a person's terminal as text.

If this fails, an agent, a task or a peer writes to the clipboard, hides a line, or forges one."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from textual.color import Color

from launch.monitor.run_state.event_text import describe_event
from launch.monitor.run_state.store import RunStore
from launch.monitor.tui.app import MonitorApp
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USER
from protocol.cli.output import JsonOutput, error_console, output_console
from protocol.events import EventLog
from protocol.plain_text import sanitize_text
from sandbox.http.serving import PlainTextFormatter
from tests.support.commands import call_command

HOSTILE = {
    "clipboard": "a\x1b]52;c;cm0gLXJm\x07b",
    "clipboard in C1": "a\x9d52;c;cm0gLXJm\x9cb",
    "through tmux": "a\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\b",
    "line erased": "a\x1b[2K\rb",
    "text turned round": "a\u202eb",
    "bell and backspace": "a\x07\x08b",
    "sequence without an end": "a\x1b]0;b",
    "lines of other kinds": "a\u2028b\x0bc\x0cd\x85e\u2029f",
    "halves that make C1": "a\udcc2\udc9b2J",
    "text turned round by a letter's mark": "a\u061cb",
}
SENT = "na\x1b]0;pwned\x07\x9b2J\u202eme"
"""Text in a run or a recipe that somebody sent."""


def assert_plain(text: str) -> None:
    assert "a" in text
    assert all(char.isprintable() or char in "\n\t" for char in text), repr(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_commands_output_is_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None)
    table.add_column("x")
    table.add_row(HOSTILE[name])
    for console in (output_console(), error_console()):
        console.print(HOSTILE[name])
        console.print(table)
    for stream in capsys.readouterr():
        assert_plain(stream)


@pytest.mark.parametrize("name", HOSTILE)
def test_an_object_on_standard_output_is_text_of_the_same_values(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(TypeError), JsonOutput(enabled=True) as out:
        out.set_result({"name": HOSTILE[name]})
    printed = capfd.readouterr().out
    assert_plain(printed)
    assert json.loads(printed) == {"name": HOSTILE[name]}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_servers_log_is_text_and_a_message_one_line_of_it(name: str) -> None:
    trouble = (ValueError, ValueError(f"{HOSTILE[name]}\n12:00 INFO x: forged"), None)
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "%s", (f"{HOSTILE[name]}\n12:00 INFO x: forged",), trouble)
    text = PlainTextFormatter("%(levelname)s %(message)s").format(record)
    assert_plain(text)
    assert text.splitlines()[1].startswith("  | ValueError: a")
    assert all(line.startswith("  | ") for line in text.splitlines()[1:])


@pytest.mark.parametrize("name", HOSTILE)
def test_the_terminal_ui_shows_text(name: str, tmp_path: Path) -> None:
    segments = [Segment(HOSTILE[name], Style(bold=True))]
    for line_filter in MonitorApp(tmp_path).get_line_filters():
        segments = line_filter.apply(segments, Color.parse("black"))
    (segment,) = segments
    assert_plain(segment.text)
    assert segment.style == Style(bold=True)


@pytest.mark.parametrize("name", HOSTILE)
def test_an_alert_is_text(name: str, tmp_path: Path) -> None:
    log = EventLog(tmp_path, "driver", "node-0")
    log.emit("alert.raised", name="stall", text=HOSTILE[name] + "\nx")
    log.close()
    store = RunStore(tmp_path)
    store.catch_up()
    (alert,) = store.view().alerts
    assert_plain(alert.text)
    assert "\n" not in alert.text


def test_the_traceback_of_an_unexpected_error_is_text() -> None:
    program = (
        "import sys\n"
        "from protocol.cli.exit_codes import main_guard\n"
        "class Name(str):\n"
        "    __repr__ = str.__str__\n"
        "main_guard(lambda: {}[Name(sys.argv[1])])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, SENT], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_FAILED
    assert done.stderr.startswith("Traceback")
    assert "KeyError: name\n" in done.stderr
    assert_plain(done.stderr)


def test_a_peers_name_does_not_forge_a_line_of_the_log() -> None:
    event = {
        "t": 1.0,
        "kind": "message.refused",
        "sender": "x\n12:00 run finished",
        "reason": "malformed",
        "detail": "y",
    }
    line = describe_event(event)
    assert line is not None
    assert "\n" not in line.text
    assert "x⏎12:00 run finished" in line.text


def test_a_runs_unknown_key_is_named_without_its_escape_sequences(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "config.json").write_text(json.dumps({"config": {"run": {SENT: "x"}}}))
    done = call_command(capfd, "launch.cluster", "--resume", tmp_path, "--dry-run")
    assert done.returncode == EXIT_USER
    assert sanitize_text(done.stderr) == done.stderr
    assert sanitize_text(SENT) in done.stderr


def test_a_recipes_unknown_key_is_named_without_its_escape_sequences(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[run]\n{json.dumps(SENT)} = 1\n")
    done = call_command(capfd, "launch.cluster", recipe, "--dry-run")
    assert done.returncode == EXIT_USER
    assert sanitize_text(done.stderr) == done.stderr
    assert sanitize_text(SENT) in done.stderr


def test_a_dry_run_writes_a_recipes_values_as_toml_escapes(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Which a terminal does not obey, and which are read back as the same values."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[run]\ndir = {json.dumps(SENT)}\n")
    done = call_command(capfd, "launch.cluster", recipe, "--dry-run")
    assert done.returncode == EXIT_OK, done.stderr
    assert sanitize_text(done.stdout) == done.stdout
    assert tomllib.loads(done.stdout)["run"]["dir"].endswith(SENT)
