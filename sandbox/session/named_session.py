"""A session that the agent has named: a shell that keeps its state, and at most one background process."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.session.shell import SandboxShell
from sandbox.session.terminal import PseudoTerminal


@dataclass(slots=True)
class NamedSession:
    """The shell and the process of one name."""

    name: str
    shell: SandboxShell | None = None
    process: PseudoTerminal | None = None
    """The process that was started last, even if it has ended."""
    file: str = ""
    """File in the sandbox with the last command's whole output."""
    in_background: bool = False
    """A command of it was left to run since the session began or was killed: the agent may look at it."""

    @property
    def running(self) -> SandboxShell | PseudoTerminal | None:
        """The shell or process that runs, or has ended with its result unread."""
        if self.shell is not None and self.shell.busy:
            return self.shell
        return self.process if self.process is not None and self.process.running else None
