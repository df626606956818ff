"""An agent's tools in a sandbox of another process or provider.

A portable tool uses the sandbox's commands and files, with its caller's limits. SETA's six tools, which include
OpenClaw's four, keep shells and processes between calls: they run on the sandbox's side, with the limits there. No
other tool can be called remotely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocol.errors import UserError
from sandbox.docker.container_spec import ContainerLimits
from sandbox.providers.interface import Sandbox
from sandbox.session.shell import CommandResult
from sandbox.tools import (
    SETA,
    PortableTool,
    PortableToolContext,
    SandboxTool,
    ToolArguments,
    ToolResult,
    Toolset,
    answer_tool_call,
)


def local_only_tools(tools: Toolset) -> tuple[str, ...]:
    """Return the names of the tools that cannot be called remotely."""
    return tuple(name for name, tool in tools.items() if not (isinstance(tool, PortableTool) or SETA.get(name) is tool))


@dataclass(frozen=True, slots=True)
class ProviderToolTarget:
    """A provider's sandbox as portable tools see it. Output arrives when its command has ended."""

    sandbox: Sandbox
    workdir: str

    @property
    def memory_bytes(self) -> int | None:
        """Memory limit of a pool with default settings."""
        return ContainerLimits().memory_bytes

    async def run(
        self, command: str, timeout_s: float, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        done = await self.sandbox.run(command, timeout_s)
        if on_output is not None:
            on_output(done.output)
        return done

    async def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        await self.sandbox.write_files(files, mode=mode)


async def call_remote_tool(
    sandbox: Sandbox, context: PortableToolContext, name: str, arguments: object, tools: Toolset
) -> ToolResult:
    """Call a tool like :func:`sandbox.tools.call_tool`, for a ``context`` that acts on ``sandbox``.

    Raises UserError for a tool that needs a pool in this process.
    """

    async def do(tool: SandboxTool, arguments: ToolArguments) -> ToolResult:
        if isinstance(tool, PortableTool):
            return await tool.call(context, arguments)
        if name in local_only_tools(tools):
            raise UserError(f"the tool {name} needs a sandbox in the same process: set sandbox.provider = 'docker'")
        return await sandbox.call_tool(name, arguments)

    return await answer_tool_call(name, arguments, tools, do)
