"""Sessions that an agent has named: each has a shell that keeps its state, and at most one background process.

A blocking command runs in its session's shell without an input; one that exceeds its time limit continues there, and
its output is kept for the next call. A command that is started in the background runs on a terminal, so that the agent
can write to it. A name is free again as soon as its command has ended; its shell stays, up to :data:`MOST_SHELLS`
shells: then the least recently used one is closed.
"""

from __future__ import annotations

import re
import time

from sandbox.session.init_connection.init_requests import Spool
from sandbox.session.named_session import NamedSession
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.shell import SandboxShell
from sandbox.session.slots import NoFreeSlotError
from sandbox.session.terminal import PseudoTerminal
from sandbox.tools.tool import ToolError

NO_SESSION, NO_ACTIVE_SESSION = "No session '{}'", "No active session '{}'"
"""Texts about a session that was never left to run in the background, or runs nothing, as SETA has them."""
MOST_SHELLS = 8
IDLE_S, START_S = 0.5, 5.0
"""Seconds of silence that end the wait for a background process's first output, and maximum seconds of that wait."""
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class NamedSessions:
    """The named sessions of one sandbox."""

    def __init__(self, session: SandboxSession, chars: int) -> None:
        self._session, self._chars = session, chars
        self._named = session.named_sessions

    def find_session(self, name: str, otherwise: str = NO_SESSION) -> NamedSession:
        """Return a session whose command was left to run.  Raises ToolError, with the text ``otherwise``, if there is
        none of this name, which is also what SETA says of one that was killed."""
        named = self._named.get(name)
        if named is None or not named.in_background:
            raise ToolError(otherwise.format(name))
        return self._used(named)

    def idle_session(self, name: str) -> NamedSession:
        """Return the session for a new command. Raises ToolError while it runs another."""
        named = self._used(self._named.get(name) or NamedSession(name))
        if named.shell is not None and named.shell.has_result:
            named.shell.release()
        if named.running is not None:
            raise ToolError(
                f"session '{name}' still runs a command: shell_view('{name}') shows its output, "
                f"shell_kill_process('{name}') ends it; or use another id"
            )
        named.file = f"/tmp/full_output_{_NAME.sub('_', name)[:64]}_{time.time_ns() // 1000}.txt"  # noqa: S108  the sandbox's
        return named

    def shell_of(self, named: NamedSession) -> SandboxShell:
        """Return the session's shell, opened if needed. Raises ToolError if there is no free slot."""
        if named.shell is None:
            named.shell = self._new_shell()
        return named.shell

    def spool(self, named: NamedSession) -> Spool:
        return Spool(named.file, self._chars)

    async def open_process(self, named: NamedSession, command: str) -> PseudoTerminal:
        """Start a background process. Raises ToolError, OSError, SandboxLost, SandboxDestroyed."""
        if named.process is not None:
            self._session.close_slot(named.process)
            named.process = None
        cwd = named.shell.cwd if named.shell else self._session.workdir
        argv = ("bash", "--noprofile", "--norc", "-c", command)
        try:
            named.process = await self._session.open_terminal(argv, cwd=cwd, spool=self.spool(named))
        except NoFreeSlotError as error:
            raise ToolError(f"{error}; kill one first") from error
        return named.process

    def _used(self, named: NamedSession) -> NamedSession:
        """Mark a session as used: the dictionary is in order of use."""
        self._named.pop(named.name, None)
        self._named[named.name] = named
        return named

    def _new_shell(self) -> SandboxShell:
        owners = [each for each in self._named.values() if each.shell is not None]
        if all(each.shell is not self._session.shell for each in owners):
            return self._session.shell
        spare = [each for each in owners if each.running is None and each.shell is not self._session.shell]
        if len(owners) >= MOST_SHELLS and spare and spare[0].shell is not None:
            self._session.close_slot(spare[0].shell)
            spare[0].shell = None
        try:
            return self._session.open_shell()
        except NoFreeSlotError as error:
            raise ToolError(f"{error}; kill one first") from error
