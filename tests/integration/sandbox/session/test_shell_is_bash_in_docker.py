"""If these fail, a command in the agent's shell does something else than what bash does with it at a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest

from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.terminal import PseudoTerminal
from sandbox.tasks.task import Task
from tests.support.sandbox.random_bash import VARIABLES, RandomBash

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="shell", instruction="")
S = 60.0
BASH = "stty -echo; exec bash --noprofile --norc --noediting +H -i"
FOLDERS = ("/tmp/agent", "/tmp/typed")
"""Of the same length, as commands print it."""
MARK = "\x1e"
PROMPTS = f"unset HISTFILE; history -c; FUNCNEST=9; PS1=$'{MARK}$?{MARK}' PS2=$'{MARK}{MARK}'"
_PROMPT = re.compile(f"{MARK}(\\d*){MARK}")
VARYING = re.compile(r"(^\[\d+\]|kill -\w+) \d+", re.MULTILINE)
"""Numbers of processes."""
CONCURRENT = re.compile(r"(?<![|&>])[|&](?![|&>])")
"""A pipe or a background job."""


class BashCrashedError(Exception):
    """The bash at the terminal jumped to a frame that it had left, which is a fault of its own."""


class TypedShell:
    """A bash on a terminal, which prints a mark before each line that it reads."""

    def __init__(self, terminal: PseudoTerminal) -> None:
        self._terminal = terminal

    async def run(self, text: str) -> tuple[str, int]:
        """Type lines and return their output and the exit code, which the last prompt shows."""
        shown = ""
        await self._terminal.send_bytes(f"{text}\n".encode())
        async with asyncio.timeout(S):
            while len(_PROMPT.findall(shown)) <= text.count("\n"):
                await self._terminal.wait_until_settled(0.002, S)
                shown += self._terminal.new_output()
                if "*** longjmp causes uninitialized stack frame ***" in shown:
                    raise BashCrashedError(text)
                assert self._terminal.running, (text, shown)
        return _PROMPT.sub("", shown), int(_PROMPT.findall(shown)[-1])


def comparable(output: str, texts: list[str]) -> list[str]:
    """Return the lines; or the words, sorted, if these texts run programs at the same time."""
    shown = VARYING.sub(r"\1", output).replace(FOLDERS[1], FOLDERS[0])
    if any(CONCURRENT.search(text) for text in texts):
        return sorted(re.split(r"[\s,]+", shown))
    return shown.split("\n")


async def compare(session: SandboxSession, source: RandomBash, lines: int) -> None:
    """Type the same random commands into both shells."""
    ours = session.open_shell()
    terminal = await session.open_terminal(("sh", "-c", BASH), columns=500)
    typed = TypedShell(terminal)
    await terminal.wait_until_settled(0.5, S)
    terminal.new_output()
    begin = "rm -rf {0}; mkdir {0}; cd {0}; ln -s /usr/lib link; export HOME={0}"
    await ours.run(f"{PROMPTS}\n{begin.format(FOLDERS[0])}", S)
    await typed.run(PROMPTS)
    await typed.run(begin.format(FOLDERS[1]))
    history: list[str] = []
    while lines > 0:
        text = source.text()
        lines -= 1 + text.count("\n")
        history.append(text)
        there, code = await typed.run(text)
        here = await ours.run(text, S)
        texts = [text, *(each for each in history if "f() {" in each)]
        found = (comparable(here.output, texts), here.exit_code, here.shell_restarted)
        assert found == (comparable(there, texts), code, False), history
    shown = f"declare -p {' '.join(VARIABLES)}; pwd -P; alias; set -o; shopt; trap; declare -f; dirs; umask; ulimit -a"
    there, _ = await typed.run(shown)
    here = await ours.run(shown, S)
    assert comparable(here.output, []) == comparable(there, []), history
    session.close_slot(ours)
    session.close_slot(terminal)


async def test_some_random_lines_do_what_they_do_at_a_terminal(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await compare(session, RandomBash(1), 100)


@pytest.mark.slow
async def test_ten_thousand_random_lines_do_what_they_do_at_a_terminal(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        for seed in range(100):
            with contextlib.suppress(BashCrashedError):
                await compare(session, RandomBash(seed), 100)
