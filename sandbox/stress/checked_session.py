"""A sandbox whose answers are all verified."""

from __future__ import annotations

import time

from protocol.errors import InfraError
from sandbox.session.shell import CommandResult
from sandbox.stress import nonces
from sandbox.stress.nonces import LEDGER_FILE, NonceVerdict
from sandbox.stress.report import StressReport
from sandbox.stress.sandbox_sources import HeldSandbox

ANSWER_S = 120.0
"""Maximum seconds for a short command, on a heavily overloaded machine."""


class UnansweredCommandError(InfraError):
    """A short command was killed at its time limit, or no shell could be started for it."""


class CheckedSession:
    """A sandbox whose answers are checked and counted in the report."""

    def __init__(self, sandbox: HeldSandbox, report: StressReport, run: str, session: int) -> None:
        self.sandbox, self._report = sandbox, report
        self._run, self._session = run, session
        self._number = 0
        self._sent: set[int] = set()
        """Numbers of the commands that wrote to the ledger, or should have."""
        self._answered: set[int] = set()
        self.reported_restart = False
        """True once the session has reported that its shell is a new one."""

    def resume_counts(self, sent: int, answered: int) -> None:
        """Continue after another process, which sent the first ``sent`` commands and got answers to ``answered`` of
        them."""
        self._number = sent
        self._sent, self._answered = set(range(1, sent + 1)), set(range(1, answered + 1))

    def _nonce(self) -> tuple[int, str]:
        self._number += 1
        return self._number, nonces.make_nonce(self._run, self._session, self._number)

    async def echo(self) -> float:
        """Run one `echo` and return its round trip in milliseconds, as its client sees it."""
        _, own = self._nonce()
        began = time.perf_counter()
        done = await self.sandbox.run(f"echo {own}", ANSWER_S)
        ms = (time.perf_counter() - began) * 1000
        self._report.commands += 1
        if done.output != f"{own}\n":
            self._report.add_wrong_answer(f"to `echo {own}`: {done.output[:200]!r}")
        return ms

    async def run_checked(self, command: str, timeout_s: float = ANSWER_S) -> CommandResult:
        """Run ``command``, verify that the answer is its own, and remember that it must be executed once.

        Raises SandboxLost, SandboxDestroyed, UnansweredCommandError.
        """
        number, own = self._nonce()
        self._sent.add(number)
        done = await self.sandbox.run(nonces.mark_command(command, own), timeout_s)
        self.reported_restart |= done.shell_restarted
        if done.timed_out or done.exit_code is None:
            raise UnansweredCommandError(f"{command[:60]!r} was not answered within {timeout_s:g} s")
        verdict = nonces.check_nonce(done.output, own)
        self._report.commands += 1
        self._answered.add(number)
        if verdict is not NonceVerdict.RIGHT:
            self._report.add_wrong_answer(
                f"{own} is {verdict} in the answer to {command[:60]!r}: {done.output[-200:]!r}"
            )
        return done

    async def run_unchecked(self, command: str, timeout_s: float) -> CommandResult:
        """Run a command that may break anything: its answer proves nothing, but it must not be executed twice.

        Raises SandboxLost, SandboxDestroyed.
        """
        number, own = self._nonce()
        self._sent.add(number)
        done = await self.sandbox.run(nonces.mark_command(command, own, answer=False), timeout_s)
        self.reported_restart |= done.shell_restarted
        return done

    async def check_ledger(self) -> None:
        """Read back what the sandbox executed. Raises SandboxLost, SandboxDestroyed."""
        if not self._sent:
            return
        try:
            text = (await self.sandbox.read_file(LEDGER_FILE)).decode(errors="replace")
        except FileNotFoundError:
            text = ""
        for problem in nonces.find_ledger_problems(text, self._run, self._session, self._sent, self._answered):
            self._report.add_wrong_answer(problem)
