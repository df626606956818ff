"""If these fail, an agent's shell loses its state, breaks when an agent misuses it, or exceeds its limits."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="shell", instruction="")
S = 20.0


async def test_directory_variables_functions_and_jobs_last_from_command_to_command(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        assert (await session.run("pwd", S)).output == "/app\n"
        await session.run("cd /usr/lib; X='a  b'; f() { echo f:$1; }; sleep 100 &", S)
        done = await session.run('echo "$X"; pwd; f 1; jobs -r | grep -c sleep', S)
        assert (done.output, done.exit_code, done.shell_restarted) == ("a  b\n/usr/lib\nf:1\n1\n", 0, False)


@pytest.mark.parametrize(
    ("command", "code", "restarted"),
    [
        ("set -e\necho a\nfalse\necho never", 1, True),
        ("exec ls", 0, True),
        ("trap 'cd /; exit 6' EXIT; exit 4", 6, True),
        ("echo 'unterminated", 2, False),
        ("if then fi", 2, False),
        ("false", 1, False),
        ("exit 3", 3, True),
        ("kill -9 $$", 137, True),
        ("kill -9 -1; true", 0, False),
        ("exec false", 1, True),
        ("set -e; false", 1, True),
    ],
)
async def test_a_command_that_breaks_the_shell_costs_only_the_shell(
    pool: SandboxPool, command: str, code: int, restarted: bool
):
    async with pool.acquire(TASK) as session:
        await session.run("cd /var", S)
        done = await session.run(command, S)
        assert (done.exit_code, done.shell_restarted) == (code, restarted)
        assert (await session.run("pwd", S)).output == "/var\n"


async def test_text_arrives_as_it_was_written(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        chunks: list[str] = []
        done = await session.run("cat <<'E'\nh\u00e9 \u6f22 \U0001f642 $X `x`\nE\nprintf err >&2", S, chunks.append)
        assert done.output == "h\u00e9 \u6f22 \U0001f642 $X `x`\nerr"
        assert "".join(chunks) == done.output
        assert (await session.run("read x; echo eof:$?", S)).output == "eof:1\n"


async def test_output_that_imitates_frames_is_output(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        forged = r"printf 'S\x0a\x00\x00\x00\x02\x00\x00\x00\x07\x00\x00\x00/x'; sleep 0.05; echo real; (exit 5)"
        done = await session.run(forged, S)
        assert done.exit_code == 5
        assert done.output.endswith("real\n")


async def test_neither_pid_1_nor_the_toolchain_can_be_touched_from_inside(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        done = await session.run(
            "for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; "
            "(echo x > /proc/1/fd/0) 2>&1; (cat /proc/1/environ) 2>&1; (echo x > /.sbx/init) 2>&1; echo here",
            S,
        )
        assert done.output.count("Permission denied") == 2
        assert "Read-only file system" in done.output
        assert done.output.endswith("here\n")


async def test_a_hundred_megabytes_are_read_and_only_the_ends_are_kept(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        done = await session.run("echo first; head -c 100000000 /dev/zero; echo last", S)
        assert done.output.startswith("first\n")
        assert done.output.endswith("last\n")
        assert len(done.output) < 140_000
        assert done.truncated_bytes > 99_000_000
        result = await session.run(f"head -n 1 {done.saved}; stat -c %s {done.saved}", S)
        assert result.output == f"first\n{64 << 20}\n"


@pytest.mark.slow
async def test_a_gigabyte_of_output_costs_neither_memory_nor_the_session(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        done = await session.run("head -c 1000000000 /dev/zero; echo last", 600)
        assert done.output.endswith("last\n")
        assert done.truncated_bytes > 999_000_000
        assert (await session.run("echo alive", S)).output == "alive\n"


async def test_a_timed_out_command_is_killed_and_earlier_jobs_are_not(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("cd /var; sleep 1001 & (trap '' TERM HUP INT; exec sleep 1002) &", S)
        await session.run("sleep 0.05", S)
        done = await session.run("cd /tmp; (sleep 1003 & sleep 1004); setsid sleep 1005 & sleep 1006", 0.3)
        assert (done.timed_out, done.exit_code, done.shell_restarted) == (True, None, True)
        result = await session.run("pwd; pgrep -a sleep | cut -d' ' -f2- | sort", S)
        assert result.output == "/tmp\nsleep 1001\nsleep 1002\n"


async def test_output_of_a_cancelled_command_does_not_appear_in_later_ones(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await session.run("sleep 1000", S)
        done = await session.run("echo next", S)
        assert (done.output, done.exit_code) == ("next\n", 0)


async def test_a_shell_that_forges_its_status_affects_no_other_shell(pool: SandboxPool):
    """It can write to its own memory, where the channel to PID 1 is."""
    async with pool.acquire(TASK) as session:
        other = session.open_shell()
        begin = "$((16#$(grep memfd:channel /proc/$$/maps | cut -d- -f1)))"
        forge = f"printf '\\3\\0\\0\\0\\7\\0\\0\\0' | dd of=/proc/$$/mem bs=1 seek={begin} conv=notrunc 2> /dev/null"
        forged = await session.run(f"(sleep 0.1; {forge}; true) & sleep 0.3; (exit 5)", S)
        assert forged.exit_code in {5, 7}
        assert (await other.run("false", S)).exit_code == 1
        done = await session.run("echo next; (exit 3)", S)
        assert ("next" in done.output.splitlines(), done.exit_code) == (True, 3), (
            "bash tells of its job before or after"
        )
        assert not done.shell_restarted
        await session.reattach()
        assert (await other.run("echo true; (exit 3)", S)).exit_code == 3


async def test_a_fork_bomb_meets_the_process_limit_and_the_sandbox_lives(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run(":(){ :|:& };:; sleep 1000", 0.5)
        await session.run("kill -9 -1", S)
        assert (await session.run("echo alive", S)).exit_code is not None


async def test_files_of_a_task_arrive_with_their_folders_and_every_byte(pool: SandboxPool):
    data = bytes(range(256)) * 4096
    task = Task(
        id="files", instruction="", files={"/srv/deep/er/data.bin": data, "/app/empty": b""}, setup="cp -r /srv /app/"
    )
    async with pool.acquire(task) as session:
        done = await session.run("sha256sum < srv/deep/er/data.bin; stat -c '%a %s' empty; pwd", S)
        assert done.output == f"{hashlib.sha256(data).hexdigest()}  -\n644 0\n/app\n"
