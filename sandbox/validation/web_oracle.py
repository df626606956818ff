"""The oracle of a task of the web: a browser's actions instead of a script."""

from __future__ import annotations

from typing import Any, NamedTuple

from sandbox.browser.browser import SandboxBrowser
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.formats.liveweb.rows import oracle_actions
from sandbox.tasks.formats.liveweb.web_actions import STOP, stop_answer
from sandbox.tasks.task import Task
from sandbox.tools import BROWSER, ToolContext, call_tool
from sandbox.tools.answer import ANSWER_TOOL

WEB_ORACLE_TOOLS = {**BROWSER, ANSWER_TOOL.name: ANSWER_TOOL}
_OBSERVATION_CHARS = 8000
_ACTION_S = 60.0


class OracleCall(NamedTuple):
    """A tool's call."""

    name: str
    arguments: dict[str, Any]

    def as_action(self) -> dict[str, Any]:
        """Return it as an agent writes it."""
        if self.name != ANSWER_TOOL.name:
            return {"type": self.name, "params": self.arguments}
        answer = self.arguments["answer"]
        return {"type": STOP, "params": {"answers" if isinstance(answer, dict) else "answer": answer}}


def has_web_oracle(task: Task) -> bool:
    """Return whether the task's solution is what a browser does."""
    return bool(oracle_actions(task))


def oracle_calls(task: Task) -> list[OracleCall]:
    """Return the calls of a web task's oracle; to stop is to give the answer."""
    return [
        OracleCall(ANSWER_TOOL.name, {"answer": stop_answer(action["params"])})
        if action["type"] == STOP
        else OracleCall(action["type"], action["params"])
        for action in oracle_actions(task)
    ]


async def run_web_oracle(session: SandboxSession, task: Task) -> str:
    """Do what the oracle does in a browser of its own.  Returns the first error, or an empty text.

    Raises SandboxStartError if the first page does not answer, and as :func:`sandbox.tools.call_tool`."""
    browser, _ = await SandboxBrowser.open(session, task.start_url, _OBSERVATION_CHARS)
    context = ToolContext(session, _ACTION_S, _OBSERVATION_CHARS, browser=browser)
    for number, call in enumerate(oracle_calls(task), 1):
        done = await call_tool(context, call.name, call.arguments, WEB_ORACLE_TOOLS)
        if done.text.startswith("Error"):
            return f"action {number} of the solution, {call.name}: {done.text}"
    return ""
