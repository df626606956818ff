"""Exactly one block of bash in each reply, as in mini-SWE-agent and as SWE-SYNTH requires.

A block may contain here-documents with blocks of their own; one that ends inside a command is not run.  Everything
else in a reply is ignored.  No text ends the episode, only a command whose output begins with :data:`SUBMIT` and which
exited with 0.  An agent that fakes that only ends its own episode early, so the exit code that the agent's shell
reports is good enough.  https://github.com/SWE-agent/mini-swe-agent
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from actors.agents.agent import ActionOutcome, AgentToolCall, MalformedAction, ParsedReply, render_opening
from actors.agents.fenced_blocks import (
    UnclosedBlockError,
    count_operators,
    find_endless_documents,
    has_fences,
    leave_out_documents,
    parse_fenced_blocks,
    unquote_delimiter,
)
from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.reasoning import UNCLOSED_REASONING, strip_reasoning
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY, Toolset
from sandbox.tools.shell_only import SHELL_EXEC

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""Text that an agent echoes when it is done in mini-swe-agent's harnesses, for example affinetes' SWE-SYNTH."""
_BASH = Language(tree_sitter_bash.language())
_DOCUMENTS = Query(_BASH, "(heredoc_start) @word")
_MOST_OPERATORS = 500
"""Most characters of operators in a block that has to be parsed.

Parsing some invalid commands takes quadratic time in them: seconds for 4,000, in which the worker's other episodes
stand still."""
_FORM = "write exactly one, which begins with a line ```bash and ends with a line ```"


@dataclass(frozen=True, slots=True)
class BashBlockAgent:
    """Runs the one block of bash of each reply."""

    prompt: PromptTemplate

    @property
    def tools(self) -> Toolset:
        return SHELL_ONLY

    @property
    def offered_tools(self) -> Toolset:
        return {}

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        return render_opening(self.prompt, task, self.tools)

    def parse_reply(self, reply: str) -> ParsedReply:
        return ParsedReply([_action(reply)])

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        (outcome,) = outcomes
        if _submits(outcome):
            return None
        return [{"role": "user", "content": _observation(outcome)}]


def _action(reply: str) -> AgentToolCall | MalformedAction:
    if (text := strip_reasoning(reply)) is None:
        return MalformedAction(UNCLOSED_REASONING)
    try:
        blocks = parse_fenced_blocks(text)
    except UnclosedBlockError:
        return MalformedAction(f"a block of three backticks in the reply has no end, and none of it was run: {_FORM}")
    found = [block for block in blocks if block.language == "bash"]
    if len(found) != 1:
        return MalformedAction(f"the reply has {len(found) or 'no'} blocks of bash, and none was run: {_FORM}")
    command = found[0].body
    has_doubtful_end, endless = found[0] is not blocks[-1] or has_fences(command), find_endless_documents(command)
    if not (has_doubtful_end or endless):
        return AgentToolCall(SHELL_EXEC.name, {"command": command})
    if (operators := count_operators(command)) > _MOST_OPERATORS:
        return MalformedAction(
            f"where the block of bash ends cannot be checked, because it has {operators} characters of operators "
            f"outside here-documents, more than {_MOST_OPERATORS}, and none of it was run: divide it, or write long "
            "texts with here-documents that have an end"
        )
    tree = Parser(_BASH).parse(leave_out_documents(command).encode(errors="replace")).root_node
    if has_doubtful_end and tree.has_error:
        return MalformedAction(
            "the block of bash ends inside a command, at a line of three backticks, and none of it was run: if a "
            "command contains such lines, begin the block with ````bash and end it with ````"
        )
    if word := _endless_document(tree, endless):
        return MalformedAction(
            f"a here-document in the block of bash has no end, a line that is only {word}, and none of it was run"
        )
    return AgentToolCall(SHELL_EXEC.name, {"command": command})


def _endless_document(tree: Node, endless: set[str]) -> str | None:
    """Return the word of a here-document without an end, which bash would end with the command; None if none of
    ``endless`` begins one.  The parser knows arithmetic, but of several of them in one line only the first."""
    if not endless:
        return None
    nodes = QueryCursor(_DOCUMENTS).captures(tree).get("word", [])
    begun = {unquote_delimiter((node.text or b"").decode()) for node in nodes}
    return min(endless if begun and tree.has_error else endless & begun, default=None)


def _submits(outcome: ActionOutcome) -> bool:
    return outcome.exit_code == 0 and outcome.output.lstrip().partition("\n")[0].strip() == SUBMIT


def _observation(outcome: ActionOutcome) -> str:
    """Format an outcome as mini-SWE-agent does."""
    if isinstance(outcome.action, MalformedAction):
        return outcome.text
    if outcome.exit_code is None:
        return f"<output>\n{outcome.text}\n</output>"
    text = outcome.text.removesuffix(f"Exit code: {outcome.exit_code}").rstrip("\n")
    return f"<returncode>{outcome.exit_code}</returncode>\n<output>\n{text}\n</output>"
