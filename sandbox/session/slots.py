"""The shells and terminals of one session: allocates their slots and routes PID 1's messages to them.

PID 1 numbers its shells and terminals by slots (:data:`.init_connection.wire.SLOTS`).  A closed slot is free again once
PID 1 has acknowledged its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sandbox.session.init_connection import init_requests, wire
from sandbox.session.init_connection.connection import InitConnection
from sandbox.session.init_connection.init_messages import SlotMessage, SlotState
from sandbox.session.init_connection.init_requests import Spool
from sandbox.session.shell import SandboxShell
from sandbox.session.terminal import PseudoTerminal

_TERMINAL_ENV = {"TERM": "xterm-256color"}


class NoFreeSlotError(Exception):
    """The session has the maximum number of shells and terminals open."""


class SlotTable:
    """The slots of one session; the first one holds the shell that exists from the start."""

    def __init__(self, connection: InitConnection, workdir: str) -> None:
        self._connection = connection
        self.main_shell = SandboxShell(connection, wire.MAIN_SLOT, workdir)
        self._slots: dict[int, SandboxShell | PseudoTerminal | None] = {wire.MAIN_SLOT: self.main_shell}
        """None stands for a slot that is being closed."""

    def open_shell(self, workdir: str) -> SandboxShell:
        """Open one more shell; it starts with its first command.  Raises NoFreeSlotError."""
        shell = SandboxShell(self._connection, self._free_slot(), workdir)
        self._slots[shell.slot] = shell
        return shell

    async def open_terminal(
        self,
        argv: Sequence[str],
        *,
        rows: int,
        columns: int,
        cwd: str,
        env: Mapping[str, str] | None,
        spool: Spool | None,
        on_output: Callable[[bytes], None] | None,
    ) -> PseudoTerminal:
        """Start a process on a terminal of its own.

        Raises ValueError for impossible rows or columns, NoFreeSlotError, OSError when the container cannot start a
        process, SandboxLost, SandboxDestroyed.
        """
        terminal = PseudoTerminal(self._connection, self._free_slot(), rows, columns, on_output)
        self._slots[terminal.slot] = terminal
        try:
            await terminal.start(cwd, argv, {**_TERMINAL_ENV, **(env or {})}, spool)
        except BaseException:
            self.close(terminal)
            raise
        return terminal

    def close(self, used: SandboxShell | PseudoTerminal) -> None:
        """Kill what runs in a shell or a terminal without waiting; PID 1's acknowledgement frees the slot."""
        slot = used.slot
        if self._slots.get(slot) is used:
            self._slots[slot] = None
            self._connection.request_with_callback(
                lambda n: init_requests.close_frame(n, slot), lambda: self._free(slot)
            )

    def handle(self, message: SlotMessage) -> None:
        """Pass a message on to the shell or terminal of its slot."""
        used = self._slots.get(message.slot)
        if isinstance(message, SlotState):
            if used is not None:
                used.handle(message)
            elif message.slot != wire.MAIN_SLOT:  # an earlier client opened it
                self._connection.send(init_requests.close_frame(self._connection.next_request(), message.slot))
        elif used is not None:
            used.handle(message)
            if isinstance(used, PseudoTerminal) and not used.running:  # PID 1 has freed its slot
                del self._slots[message.slot]

    def on_requests_lost(self, after: int, up_to: int) -> None:
        """Fail the commands whose requests, numbered ``after`` (exclusive) to ``up_to``, never reached PID 1."""
        for used in self._slots.values():
            if isinstance(used, SandboxShell) and after < used.request <= up_to:
                used.lost()

    def _free(self, slot: int) -> None:
        self._slots.pop(slot, None)

    def _free_slot(self) -> int:
        free = next((slot for slot in range(wire.SLOTS) if slot not in self._slots), None)
        if free is None:
            raise NoFreeSlotError(f"{wire.SLOTS} shells and terminals are open")
        return free
