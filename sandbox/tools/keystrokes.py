"""The terminal as Terminal-Bench's agents use it: keys in, a pause, the screen out."""

from __future__ import annotations

from sandbox.session.slots import NoFreeSlotError
from sandbox.session.terminal import PseudoTerminal
from sandbox.tools.tool import (
    SandboxTool,
    ToolArguments,
    ToolContext,
    ToolError,
    ToolParameter,
    ToolResult,
    seconds_argument,
)

ROWS, COLUMNS = 40, 160
"""Size of Terminal-Bench's pane."""
LONGEST_PAUSE_S = 60.0
_PAUSE_S = 1.0
_PROMPT_S, _QUIET_S = 5.0, 0.1
"""Seconds in which a new terminal may show its prompt, and seconds without output that follow it."""
_NEW = "[a new terminal was opened]"


async def _keystrokes(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    keys = arguments.get("keystrokes")
    if not isinstance(keys, str) and not (isinstance(keys, list) and all(isinstance(each, str) for each in keys)):  # pyright: ignore[reportUnknownVariableType]  from a model's JSON
        raise ToolError("argument 'keystrokes' must be a string or a list of strings")
    pause_s = seconds_argument(arguments, "duration", _PAUSE_S, LONGEST_PAUSE_S)
    terminal, note = context.session.terminal, ""
    if terminal is None or not terminal.running:
        note = f"{_NEW}\n" if terminal is not None else ""
        if terminal is not None:
            context.session.close_slot(terminal)
        try:
            terminal = await context.session.open_terminal(rows=ROWS, columns=COLUMNS)
        except NoFreeSlotError as error:
            raise ToolError(f"{error}; close one first") from error
        context.session.terminal = terminal
        if keys:
            await _prompted(terminal)
    if keys:
        await terminal.send(keys)  # pyright: ignore[reportUnknownArgumentType]  checked above
    await terminal.wait_until_settled(pause_s, pause_s)
    return ToolResult(note + terminal.screen().text, terminal.exit_code, raw=terminal.new_output())


async def _prompted(terminal: PseudoTerminal) -> None:
    """Wait until the shell has printed something and is quiet: keys before its prompt would be echoed twice."""
    await terminal.wait_for_screen(lambda screen: bool(screen.text.strip()), _PROMPT_S)
    await terminal.wait_until_settled(_QUIET_S, _PROMPT_S)


KEYSTROKES_TOOL = SandboxTool(
    "terminal_keystrokes",
    "Type into a terminal and see its screen. 'C-c', 'Enter', 'Escape', 'Up' and the like are keys; other text is "
    "typed as it is, a newline as Enter.",
    (
        ToolParameter("keystrokes", "string", "A key or text; empty to look only."),
        ToolParameter("duration", "number", "Seconds to wait before the screen is taken (default 1).", required=False),
    ),
    _keystrokes,
)
