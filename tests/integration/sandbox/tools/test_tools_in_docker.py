"""If these fail, tools lose output or fail to kill, or an agent that was trained elsewhere reads texts that it does not
know."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools import CODE_INTERPRETER, SETA, SHELL_ONLY, TERMINAL_BENCH, ToolContext, Toolset, call_tool
from sandbox.tools.answer import ANSWER_TOOL
from tests.support.sandbox.docker_requests import on_docker_request

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="tools", instruction="")
S = 20.0


class ToolCaller:
    """Calls tools like a model."""

    def __init__(self, session: SandboxSession, limit_s: float = S, tools: Toolset = SETA) -> None:
        self.context, self.tools = ToolContext(session, command_timeout_s=limit_s), tools

    async def __call__(self, name: str, **arguments: object) -> str:
        return (await call_tool(self.context, name, arguments, self.tools)).text

    async def until(self, what: str, name: str, **arguments: object) -> str:
        """Call again until the concatenated answers contain this; return them."""
        output = ""
        async with asyncio.timeout(60):
            while what not in output:
                output += await self(name, **arguments)
                await asyncio.sleep(0.01)
        return output


async def test_a_named_session_keeps_its_state_and_two_names_are_two_shells(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session)
        assert await agent("shell_exec", id="a", command="cd /usr; X=1") == ""
        assert await agent("shell_exec", id="b", command="pwd; echo ${X-none}; Y=2") == "/app\nnone\n"
        assert await agent("shell_exec", id="a", command="pwd; echo $X ${Y-none}") == "/usr\n1 none\n"
        assert await agent("shell_exec", id=1, command="exit 3") == (
            "exit\nThe shell was restarted in the same directory; variables are lost."
        )


async def test_a_command_beyond_the_limit_becomes_a_session_and_loses_no_byte(pool: SandboxPool):
    """SETA's defect 1: output after the conversion was lost. Defect 4: the hint named a wait that was capped."""
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, limit_s=0.4)
        output = await agent("shell_exec", id="long", command="echo before; mkfifo go; read < go; echo after; exit 5")
        assert output == (
            "Command did not complete within 0.4 seconds. Session 'long' is still running.\n\n"
            "You can use:\n"
            "  - shell_view('long') - get current output\n"
            "  - shell_wait('long', wait_seconds=10) - wait for completion\n"
            "  - shell_kill_process('long') - terminate\n\n"
            "[Partial output so far]:\nbefore\n"
        )
        assert await agent("shell_view", id="long") == ""
        assert "still runs a command" in await agent("shell_exec", id="long", command="true")
        assert await agent("shell_exec", id="other", command="echo > go; echo sent") == "sent\n"
        views = await agent.until(
            "[completed]", "shell_view", id="long"
        )  # the newline is between two of them, or in one
        assert views.removeprefix("after").removeprefix("\n") == (
            "exit\nThe shell was restarted in the same directory; variables are lost.\n[completed]"
        )
        assert views.startswith("after")
        assert await agent("shell_wait", id="long") == (
            "Session is no longer running. Use shell_view to get final output."
        )
        assert await agent("shell_view", id="long") == "\n[completed]"
        await agent("shell_exec", id="long", command="echo waited; read < go")
        assert await agent("shell_wait", id="long", wait_seconds=0.1) == ""


async def test_a_session_is_one_whose_command_was_left_to_run(pool: SandboxPool):
    """In SETA a command that ends within the limit leaves no session, and one that was not begun with block=false has
    no input."""
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session)
        assert await agent("shell_exec", id="a", command="printf 'one\\rtwo\\033[1m\\n'") == "one\ntwo\n"
        for tool in ("shell_view", "shell_wait"):
            assert await agent(tool, id="a") == "Error: No session 'a'."
        await ToolCaller(session, limit_s=0.1)("shell_exec", id="a", command="sleep 2007")
        assert await agent("shell_view", id="a") == ""
        assert await agent("shell_write_to_process", id="a", command="x") == (
            "Error writing to session 'a': it has no input; start its command with block=false to write to it."
        )
        started = await agent("shell_exec", id="b", command="echo done", block=False)
        ended = await agent.until("[completed]", "shell_view", id="b")
        assert started + ended == "Session 'b' started.\n\n[Initial Output]:\ndone\n\n[completed]"


async def test_unread_output_comes_first_in_the_next_answer(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, limit_s=0.3)
        await agent("shell_exec", id="a", command="mkfifo go; read < go; echo unseen")
        await agent("shell_exec", id="b", command="echo > go")
        async with asyncio.timeout(S):
            while "unseen" not in (output := await agent("shell_exec", id="a", command="echo seen")):
                assert "still runs" in output
                await asyncio.sleep(0.01)
        assert output == "unseen\nseen\n"


async def test_killing_a_session_kills_its_background_processes_and_no_other_session(pool: SandboxPool):
    """SETA's defect 2: killing a converted session killed nothing."""
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, limit_s=0.3)
        await agent("shell_exec", id="keep", command="sleep 2001")
        await agent("shell_exec", id="job", command="(sleep 2002 & sleep 2003) | cat; setsid sleep 2004")
        await agent("shell_exec", id="tty", command="sleep 2005 & sleep 2006", block=False)
        assert await agent("shell_kill_process", id="job") == "Session 'job' terminated."
        assert await agent("shell_kill_process", id="tty") == "Session 'tty' terminated."
        assert await agent("shell_kill_process", id="tty") == "Error: No active session 'tty'."
        assert await agent("shell_view", id="tty") == "Error: No session 'tty'."
        processes = (await session.open_shell().run("pgrep -a sleep | cut -d' ' -f2-", S)).output.split("\n")
        assert "sleep 2001" in processes
        assert not {"sleep 2002", "sleep 2003", "sleep 2005", "sleep 2006"} & set(processes)
        assert (await agent("shell_exec", id="job", command="pwd; echo again")) == (
            "/app\nagain\nThe shell was restarted in the same directory; variables are lost."
        )


async def test_a_script_is_over_when_it_has_ended_and_not_before(pool: SandboxPool):
    """SETA's defect 3: a shell in the foreground was taken for a prompt."""
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session)
        await agent(
            "shell_write_content_to_file", file_path="s.sh", content="read x; echo got:$x; exec bash -c 'exit 4'\n"
        )
        started = await agent("shell_exec", id="s", command="bash s.sh", block=False)
        assert started == "Session 's' started.\n\n[Initial Output]:\n"
        assert await agent("shell_view", id="s") == ""
        output = await agent("shell_write_to_process", id="s", command="hello")
        output += await agent.until("[completed]", "shell_view", id="s")
        assert output == "hello\ngot:hello\n\n[completed]"


async def test_a_repl_answers_line_by_line(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session)
        await agent("shell_exec", id="py", command="python3 -q", block=False)
        assert "4711" in await agent.until("4711", "shell_write_to_process", id="py", command="print(4000 + 711)")
        assert "[completed]" not in await agent("shell_write_to_process", id="py", command="exit()")
        await agent.until("[completed]", "shell_view", id="py")
        assert await agent("shell_write_to_process", id="py", command="1") == "Error: No active session 'py'."


def descriptors() -> set[Path]:
    """Return the open descriptors of this process."""
    return set(Path("/proc/self/fd").iterdir())


async def test_a_hundred_sessions_leave_no_descriptor_and_no_shell(pool: SandboxPool):
    """SETA's defect 5: each session leaked descriptors."""
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session)
        await agent("shell_exec", id="first", command="true", block=False)
        before = descriptors()
        for number in range(100):
            assert await agent("shell_exec", id=f"n{number}", command=f"echo {number}") == f"{number}\n"
            if number % 5 == 0:
                await agent("shell_exec", id=f"t{number}", command="true", block=False)
        assert len(descriptors() - before) < 10
        count = await agent("shell_exec", id="count", command="pgrep -c bash")
        assert int(count) < 12


async def test_polling_an_open_session_makes_no_call_to_the_daemon(pool: SandboxPool):
    """CAMEL polled it ten times a second for each session: a hundred sessions blocked everything else."""
    async with pool.acquire(TASK) as session:
        agent, request_paths = ToolCaller(session, 0.2), list[str]()
        on_docker_request(pool.engine, request_paths.append)
        await agent("shell_exec", id="a", command="for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.1; done")
        await agent.until("no longer running", "shell_wait", id="a", wait_seconds=0.2)
        calls = [each for each in request_paths if session.container in each and not each.endswith("/json")]
        assert not calls
        assert len(request_paths) <= 2, "the disk watch looks once where a new sandbox writes"


async def test_a_long_output_is_cut_and_whole_in_the_sandbox(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session)
        for block in (True, False):
            output = await agent("shell_exec", id="o", command="seq 1 5000", block=block)
            body = output.split("[Initial Output]:\n")[-1]
            if not block:  # a terminal shows it bit by bit
                body += await agent.until("[completed]", "shell_view", id="o")
            path = body.split("Full output saved at: ")[1].split("]")[0]
            assert path.startswith("/tmp/full_output_o_")
            whole = (await session.read_file(path)).decode().replace("\r\n", "\n")
            assert whole == "".join(f"{n}\n" for n in range(1, 5001))
            if block:
                assert (
                    output == f"{whole[:500]}\n... [Output truncated. Full output saved at: {path}] ...\n{whole[-500:]}"
                )


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("shell_exec", {"id": "a"}, "argument 'command' must be a string"),
        ("shell_exec", {"id": "a", "command": " "}, "argument 'command' is empty"),
        ("shell_exec", {"id": "a", "command": "a\0b"}, "no NUL"),
        ("shell_exec", {"id": "a", "command": "true", "block": "maybe"}, "'block' must be true or false"),
        ("shell_exec", {"id": "a", "command": "x" * (1 << 21)}, "at most 1,047,552 bytes"),
        ("shell_view", {"id": "nobody"}, "No session 'nobody'"),
        ("shell_wait", {"id": "nobody", "wait_seconds": 1}, "No session 'nobody'"),
        ("shell_wait", {"id": ["x"]}, "argument 'id' must be a string"),
        ("shell_write_to_process", {"id": "nobody", "command": "x"}, "No active session 'nobody'"),
        ("shell_kill_process", {"id": "nobody"}, "No active session 'nobody'"),
        ("shell_write_content_to_file", {"content": "x", "file_path": "/proc/self/mem"}, "not permitted"),
        ("shell_write_content_to_file", {"content": "x", "file_path": "/app"}, "Is a directory"),
        ("shell_write_content_to_file", {"content": "x", "file_path": "/dev/zero"}, "Invalid argument"),
        ("shell_write_content_to_file", {"content": "x", "file_path": "a\0b"}, "no NUL in a path"),
        ("rm_rf", {}, "unknown tool 'rm_rf'"),
    ],
)
async def test_a_wrong_call_is_answered_in_words(pool: SandboxPool, name: str, arguments: dict[str, object], says: str):
    async with pool.acquire(TASK) as session:
        output = await ToolCaller(session)(name, **arguments)
        assert output.startswith("Error")
        assert says in output


async def test_keystrokes_show_the_screen_that_a_person_would_see(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, tools=TERMINAL_BENCH)
        await agent("terminal_keystrokes", keystrokes="vim.tiny note\n", duration=0)
        await agent.until('"note" [New', "terminal_keystrokes", keystrokes="", duration=0.2)
        await agent("terminal_keystrokes", keystrokes="ihello", duration=0)
        await agent("terminal_keystrokes", keystrokes=["Escape", ":wq", "Enter"], duration=0)
        await agent.until("written", "terminal_keystrokes", keystrokes="", duration=0.2)
        assert await session.read_file("/app/note") == b"hello\n"
        await agent("terminal_keystrokes", keystrokes="sh -c 'echo $((6*7))go; exec sleep 1000'\n", duration=0)
        await agent.until("42go", "terminal_keystrokes", keystrokes="", duration=0.2)  # it has the terminal
        await agent("terminal_keystrokes", keystrokes="C-c", duration=0)
        await agent.until("rc=130", "terminal_keystrokes", keystrokes="echo rc=$?\n", duration=0.2)
        await agent("terminal_keystrokes", keystrokes="C-d", duration=5)
        assert (await agent("terminal_keystrokes", keystrokes="", duration=0)).startswith("[a new terminal was opened]")


async def test_the_first_keys_are_typed_at_the_prompt_and_shown_once(pool: SandboxPool):
    """If they are typed before the prompt, the terminal echoes them, and bash echoes them again."""
    slow = replace(TASK, env={"PROMPT_COMMAND": "sleep 0.3", "PS1": "ready$ "})
    async with pool.acquire(slow) as session:
        agent = ToolCaller(session, tools=TERMINAL_BENCH)
        output = await agent("terminal_keystrokes", keystrokes="echo o'n'ce\n", duration=0)
        output = (
            output
            if "\nonce" in output
            else await agent.until("once", "terminal_keystrokes", keystrokes="", duration=0.2)
        )
        assert output.strip().splitlines()[0] == "ready$ echo o'n'ce"


async def test_keystrokes_may_be_longer_than_any_command_line(pool: SandboxPool):
    """tmux refuses them: "command too long"."""
    text = "".join(f"{number:0500}\n" for number in range(400))
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, tools=TERMINAL_BENCH)
        await agent("terminal_keystrokes", keystrokes="stty -echo; cat > long\n", duration=0.2)
        await agent("terminal_keystrokes", keystrokes=[text, "C-d"], duration=0)
        await agent.until("rc=0", "terminal_keystrokes", keystrokes="stty echo; echo rc=$?\n", duration=0.2)
        assert await session.read_file("/app/long") == text.encode()


async def test_an_agent_with_one_tool_reads_errors_as_text(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, tools=SHELL_ONLY)
        assert await agent("shell_exec", id="1", command="echo hi; exit 4") == (
            "hi\nexit\nExit code: 4\nThe shell was restarted in the same directory; variables are lost."
        )
        hasty = ToolCaller(session, 0.3, SHELL_ONLY)
        assert "timed out after 0.3 s" in await hasty("shell_exec", command="sleep 99")
        long = await agent("shell_exec", command="seq 1 1000")
        assert long.startswith("1\n2\n")
        assert long.endswith("\n1000")
        assert len(long) < 1100
        assert (await agent("shell_exec", command=["ls"])).startswith("Error:")


async def test_each_python_program_runs_separately_and_reports_how_it_ended(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, tools=CODE_INTERPRETER)
        assert await agent("code_interpreter", code="x = 'é'\nprint(x, 6 * 7)") == "é 42"
        failed = await agent("code_interpreter", code="import sys\nprint('to', file=sys.stderr)\nprint(x)")
        assert failed.startswith("to\nTraceback")
        assert failed.endswith("NameError: name 'x' is not defined\nExit code: 1")
        assert await agent("code_interpreter", code="open('kept', 'w').write('y')") == "(no output)"
        assert await agent("code_interpreter", code="print(open('/app/kept').read(), input())") == (
            "Traceback (most recent call last):\n"
            '  File "/tmp/.code_interpreter.py", line 1, in <module>\n'
            "    print(open('/app/kept').read(), input())\n"
            "                                    ^^^^^^^\n"
            "EOFError: EOF when reading a line\nExit code: 1"
        )
        assert await agent("code_interpreter", code=" ") == "Error: argument 'code' is empty."


async def test_a_python_program_has_a_time_a_memory_and_an_output_limit(pool: SandboxPool):
    """Otherwise a wrong program would end its container, and the episode with it."""
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, tools=CODE_INTERPRETER)
        assert "MemoryError" in await agent("code_interpreter", code="print(len(bytearray(1 << 30)))")
        agent.context = replace(agent.context, program_bytes=64 << 20)
        assert "MemoryError" in await agent("code_interpreter", code="print(len(bytearray(100 << 20)))")
        assert await agent("code_interpreter", code="print(len(bytearray(20 << 20)))") == str(20 << 20)
        much = await agent("code_interpreter", code="print('a' * 10_000_000)")
        assert len(much) < 1200
        assert "Output truncated" in much
        agent.context = replace(agent.context, command_timeout_s=5.0)
        endless = "import subprocess\nprint('begun')\nsubprocess.run(['sleep', '1000'])"
        assert (await agent("code_interpreter", code=endless)).startswith("begun\nCommand timed out after 5 s")
        agent.context = replace(agent.context, command_timeout_s=S)
        assert await agent("code_interpreter", code="import os\nprint('sleep' in os.popen('ps -e').read())") == "False"


async def test_an_answer_lies_where_the_tests_find_it(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        agent = ToolCaller(session, tools={ANSWER_TOOL.name: ANSWER_TOOL})
        assert await agent("answer", answer="It is \\boxed{7}.") == "The answer has been recorded."
        assert await agent("answer", answer={"answer1": "é"}) == "The answer has been recorded."
        assert await session.read_file("/app/answer.txt") == b"It is \\boxed{7}."
        assert await session.read_file("/app/answer.json") == '{"answer1":"é"}'.encode()
        assert await agent("answer") == "Error: argument 'answer' is missing."
