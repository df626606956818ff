"""If these fail, the tools do not do what their descriptions promise the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest

from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.shell import CommandResult
from sandbox.tools import OPENCLAW, SETA, SHELL_ONLY, SandboxTool, ToolContext, ToolError, Toolset, call_tool
from sandbox.tools.tool import file_argument


class SilentSession:
    """Succeeds silently, whatever it runs."""

    async def run(
        self, command: str, timeout_s: float, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        return CommandResult("", 0, 0, False, 1.0, False)


class NotedArguments(Mapping[str, Any]):
    """Remembers which of them were read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values_, self.read = values, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


@pytest.mark.parametrize(
    ("tools", "promised"),
    [
        (
            SETA,
            {
                "shell_exec": (["id", "command", "block"], ["id", "command"]),
                "shell_view": (["id"], ["id"]),
                "shell_wait": (["id", "wait_seconds"], ["id"]),
                "shell_write_to_process": (["id", "command"], ["id", "command"]),
                "shell_kill_process": (["id"], ["id"]),
                "shell_write_content_to_file": (["content", "file_path"], ["content", "file_path"]),
            },
        ),
        (
            OPENCLAW,
            {
                "shell_exec": (["id", "command", "block"], ["id", "command"]),
                "shell_view": (["id"], ["id"]),
                "shell_write_to_process": (["id", "command"], ["id", "command"]),
                "shell_write_content_to_file": (["content", "file_path"], ["content", "file_path"]),
            },
        ),
    ],
    ids=["SETA", "OpenClaw"],
)
def test_tool_sets_have_the_parameters_of_their_original_systems(tools: Toolset, promised: Mapping[str, Any]) -> None:
    found = {name: tool.schema["function"]["parameters"] for name, tool in tools.items()}
    assert {name: (list(each["properties"]), each["required"]) for name, each in found.items()} == promised


@pytest.mark.parametrize("tool", SHELL_ONLY.values(), ids=list(SHELL_ONLY))
async def test_a_tool_reads_every_argument_of_its_schema_and_requires_the_required_ones(
    tool: SandboxTool,
) -> None:
    function = tool.schema["function"]
    properties, required = function["parameters"]["properties"], function["parameters"]["required"]
    context = ToolContext(cast("SandboxSession", SilentSession()), 20.0)
    arguments = NotedArguments(dict.fromkeys(properties, "true"))
    assert (await tool.call(context, arguments)).exit_code == 0
    assert arguments.read == set(properties)
    assert function["name"] == tool.name
    for missing in properties:
        answer = await call_tool(
            context, tool.name, {name: "true" for name in properties if name != missing}, SHELL_ONLY
        )
        assert answer.text.startswith("Error:") == (missing in required)


@pytest.mark.parametrize(
    ("given", "home", "path"),
    [
        ("notes.txt", "/root", "/app/notes.txt"),
        ("/etc/x", "/root", "/etc/x"),
        ("~/notes.txt", "/home/bob", "/home/bob/notes.txt"),
        ("~//deep/x", "/", "/deep/x"),
        ("./~/x", "/root", "/app/./~/x"),
        ("a~/$b", "/root", "/app/a~/$b"),
    ],
)
def test_a_file_is_where_a_shell_would_look_for_it(given: str, home: str, path: str):
    assert file_argument({"f": given}, "f", "/app", home) == path


@pytest.mark.parametrize("given", ["~", "~/", "~bob/x", "$HOME/x", "${HOME}/x", "$(pwd)/x", "", " ", "a/"])
def test_a_name_that_only_a_shell_understands_is_no_file(given: str):
    with pytest.raises(ToolError, match="argument 'f'"):
        file_argument({"f": given}, "f", "/app", "/root")


def test_a_home_that_is_not_known_is_no_folder_of_the_working_directory():
    with pytest.raises(ToolError, match="give the absolute path"):
        file_argument({"f": "~/notes.txt"}, "f", "/app")
