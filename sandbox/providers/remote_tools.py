"""An agent's tools in a sandbox that is not of this process's pool: a pool server's, or another provider's.

A plain tool acts on the sandbox's commands and files, with the limits of its caller.  SETA's six, of which OpenClaw's
four are some, hold shells and processes between calls: they are called where those are, with the limits of that place.
Nothing else can be called elsewhere.
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
    """Names of those that cannot be called elsewhere."""
    return tuple(name for name, tool in tools.items() if not (isinstance(tool, PortableTool) or SETA.get(name) is tool))


@dataclass(frozen=True, slots=True)
class ProviderToolTarget:
    """A provider's sandbox as plain tools see it.  Output comes when its command has ended."""

    sandbox: Sandbox
    workdir: str

    @property
    def memory_bytes(self) -> int | None:
        """What a pool gives that is told nothing else."""
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
    """:func:`sandbox.tools.call_tool`, for ``context`` that acts on ``sandbox``.  Raises UserError for a tool that is
    bound to a pool's own process."""

    async def do(tool: SandboxTool, said: ToolArguments) -> ToolResult:
        if isinstance(tool, PortableTool):
            return await tool.call(context, said)
        if name in local_only_tools(tools):
            raise UserError(f"the tool {name} acts on a sandbox of its own process: set sandbox.provider = 'docker'")
        return await sandbox.call_tool(name, said)

    return await answer_tool_call(name, arguments, tools, do)
