"""If these fail, an agent cannot use programs that need a terminal, such as vim, less or a REPL."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.init_connection import wire
from sandbox.session.init_connection.init_requests import Spool
from sandbox.session.slots import NoFreeSlotError
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="terminal", instruction="")
S = 30.0


async def test_a_pager_fills_the_screen_follows_a_resize_and_restores_the_screen(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("seq 1 500 > n", S)
        terminal = await session.open_terminal(rows=12, columns=40, env={"PS1": "$ "})
        await terminal.send(["less n", "Enter"])
        assert await terminal.wait_for_screen(lambda screen: screen.lines[:11] == tuple(map(str, range(1, 12))), S)
        await terminal.send("PageDown")
        assert await terminal.wait_for_screen(lambda screen: screen.lines[0] == "12", S)
        await terminal.resize(30, 100)
        for rows, columns in ((0, 100), (30, -1), (100_000, 100)):
            with pytest.raises(ValueError, match="1 to 1000"):
                await terminal.resize(rows, columns)
        await terminal.send("r")  # less draws anew by itself only if it was waiting for a key already
        assert await terminal.wait_for_screen(lambda screen: "35" in screen.lines, S)
        await terminal.send("g")
        assert await terminal.wait_for_screen(lambda screen: "29" in screen.lines and screen.lines[0] == "1", S)
        await terminal.send("q")
        await terminal.send("stty size; tput cols\n")
        assert await terminal.wait_for_screen(lambda screen: "30 100" in screen.lines and "100" in screen.lines, S)
        assert terminal.running


async def test_random_bytes_do_not_break_the_screen(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        terminal = await session.open_terminal(
            ("bash", "-c", "head -c 3000000 /dev/urandom; printf '\\033cplain'; read")
        )
        assert await terminal.wait_for_screen(lambda screen: screen.text.endswith("plain"), S)
        assert terminal.screen().cursor[0] < 24


async def test_terminal_output_is_saved_in_full_and_the_exit_code_is_reported(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        spool = Spool("/tmp/whole", 1000)
        terminal = await session.open_terminal(("bash", "-c", "seq 1 100000; exit 9"), spool=spool)
        assert await terminal.wait_until_ended(S)
        assert (terminal.exit_code, terminal.saved) == (9, "/tmp/whole")
        assert (await session.read_file("/tmp/whole")).split() == [b"%d" % n for n in range(1, 100_001)]
        with pytest.raises(OSError, match="No such process"):
            await terminal.send("x")


async def test_closing_a_terminal_kills_its_program_and_frees_its_slot(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        opened = [await session.open_terminal(("sleep", "3000")) for _ in range(wire.SLOTS - 1)]
        with pytest.raises(NoFreeSlotError):
            session.open_shell()
        for each in opened:
            session.close_slot(each)
        assert (await session.run("while pgrep -x sleep; do :; done | tail -n 1 | wc -l", S)).exit_code == 0
        again = await session.open_terminal(("echo", "hi"))
        assert await again.wait_until_ended(S)
        assert again.new_output() == "hi\n"


async def test_a_terminal_for_a_missing_program_ends_at_once(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        terminal = await session.open_terminal(("/no/such",))
        assert await terminal.wait_until_ended(S)
        assert terminal.exit_code == 127


async def test_opening_a_terminal_fails_when_the_agent_has_replaced_the_device(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("rm -f /dev/ptmx; mkfifo /dev/ptmx", S)
        with pytest.raises(OSError, match=r"\w"):
            await session.open_terminal()
        assert (await session.run("echo alive", S)).output == "alive\n"


async def test_shells_run_side_by_side_and_neither_hears_the_other(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        shells = [session.shell, *(session.open_shell() for _ in range(5))]

        async def one(number: int) -> None:
            for turn in range(20):
                done = await shells[number].run(f"N={number}.{turn}; echo $N; (exit {number})", S)
                assert (done.output, done.exit_code) == (f"{number}.{turn}\n", number)

        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(one(number))


async def test_a_timed_out_command_kills_nothing_in_another_shell(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        other = session.open_shell()
        other.start("setsid sleep 4001 & (sleep 4002 &) ; mkfifo go; read < go; pgrep -a sleep | cut -d' ' -f2- | sort")
        await session.run("until test -p go; do :; done", S)
        assert (await session.run("sleep 4003 & sleep 4004", 0.2)).timed_out
        await session.run("echo > go", S)
        assert await other.wait_until_ended(S)
        lines = other.finish().output.splitlines()  # bash says at any of its commands that setsid is done
        assert [line for line in lines if line.startswith("sleep")] == ["sleep 4001", "sleep 4002"]
