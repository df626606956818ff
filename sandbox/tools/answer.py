"""The tool by which an agent gives its answer: a file that the tests read.

A text goes to TEXT_FILE unchanged, anything else to JSON_FILE, both in the working directory.
"""

from __future__ import annotations

import posixpath

import orjson

from sandbox.tools.tool import PortableTool, PortableToolContext, ToolArguments, ToolError, ToolParameter, ToolResult

TEXT_FILE, JSON_FILE = "answer.txt", "answer.json"


async def _answer(context: PortableToolContext, arguments: ToolArguments) -> ToolResult:
    answer = arguments.get("answer")
    if isinstance(answer, str):
        name, content = TEXT_FILE, answer.encode(errors="surrogateescape")
    elif answer is not None:
        name, content = JSON_FILE, orjson.dumps(answer)
    else:
        raise ToolError("argument 'answer' is missing")
    await context.session.write_files({posixpath.join(context.session.workdir, name): content})
    return ToolResult("The answer has been recorded.")


ANSWER_TOOL = PortableTool("answer", "Give the answer.", (ToolParameter("answer", "string", "The answer."),), _answer)
