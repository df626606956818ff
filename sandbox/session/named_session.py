"""What an agent calls a session: a shell that keeps its state, and at most one background process."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.session.shell import SandboxShell
from sandbox.session.terminal import PseudoTerminal


@dataclass(slots=True)
class NamedSession:
    name: str
    shell: SandboxShell | None = None
    process: PseudoTerminal | None = None
    """The one that was started last, ended or not."""
    file: str = ""
    """Where the last command's whole output goes."""

    @property
    def running(self) -> SandboxShell | PseudoTerminal | None:
        """What runs, or has ended without being looked at."""
        if self.shell is not None and self.shell.busy:
            return self.shell
        return self.process if self.process is not None and self.process.running else None
