"""The behaviour of every sandbox provider: one small case each, run on the library, the server and through the router.
A case gets a sandbox of :data:`TASK` that others have used before it, and leaves no process behind."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from sandbox.providers.interface import Sandbox
from sandbox.tasks.task import Task

S = 30.0
Case = Callable[[Sandbox], Awaitable[None]]
CASES: dict[str, Case] = {}
TASK = Task(
    id="conformance",
    instruction="",
    files={"/app/given.txt": b"given\n"},
    setup="echo set-up > /app/set-up.txt",
    tests={"data": b"hidden"},
    run_tests='#!/bin/sh\necho short test summary info\n[ -f /app/done ] && echo PASSED one || echo FAILED one\n'
    '[ "$(cat $TEST_DIR/data)" = hidden ] && echo PASSED two\n',
    expected_tests=("one", "two"),
)  # fmt: skip
EVERY_BYTE = bytes(range(256)) * 64


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


async def run_command(sandbox: Sandbox, command: str) -> str:
    done = await sandbox.run(command, S)
    assert not done.timed_out
    return done.output


async def assert_read_fails(sandbox: Sandbox, path: str, number: int, max_bytes: int = 1000) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011  the number says which
        await sandbox.read_file(path, max_bytes)
    assert caught.value.errno == number


def output_case(name: str, command: str, expected: str) -> None:
    async def run(sandbox: Sandbox) -> None:
        assert await run_command(sandbox, command) == expected

    CASES[f"run_{name}"] = run


output_case("prints", "echo hello", "hello\n")
output_case("nothing", "true", "")
output_case("without_newline", "printf a", "a")
output_case("error_stream", "echo err >&2", "err\n")
output_case("both_in_order", "echo 1; echo 2 >&2; echo 3", "1\n2\n3\n")
output_case("unicode", "echo 'žluťoučký 🐎'", "žluťoučký 🐎\n")
output_case("quotes", """echo '"' "'" \\$HOME""", "\" ' $HOME\n")
output_case("many_lines", "for i in 1 2 3; do\n  echo $i\ndone", "1\n2\n3\n")
output_case("here_document", "cat <<X\na\nb\nX", "a\nb\n")
output_case("environment", "export CASE=1; env | grep ^CASE=", "CASE=1\n")
output_case("pipes", "printf 'b\\na\\n' | sort | head -1", "a\n")
output_case("no_standard_input", "cat; echo end", "end\n")
output_case("working_directory", "cd / && pwd; cd /app", "/\n")
output_case("another_user", "setpriv --reuid 65534 id -u 2>/dev/null || echo 65534", "65534\n")
output_case("given_file", "cat /app/given.txt", "given\n")
output_case("set_up_ran", "cat /app/set-up.txt", "set-up\n")
output_case("tests_are_hidden", "ls -d /tests 2>/dev/null | wc -l", "0\n")


@case
async def run_exit_code(sandbox: Sandbox) -> None:
    for code in (0, 1, 77):
        assert (await sandbox.run(f"(exit {code})", S)).exit_code == code


@case
async def run_syntax_error(sandbox: Sandbox) -> None:
    done = await sandbox.run("if then fi", S)
    assert done.exit_code == 2
    assert "syntax error" in done.output
    assert await run_command(sandbox, "echo alive") == "alive\n"


@case
async def run_unterminated_quote(sandbox: Sandbox) -> None:
    assert (await sandbox.run("echo 'abc", S)).exit_code == 2


@case
async def run_command_not_found(sandbox: Sandbox) -> None:
    assert (await sandbox.run("no-such-program-anywhere", S)).exit_code == 127


@case
async def run_killed_at_once_is_no_timeout(sandbox: Sandbox) -> None:
    done = await sandbox.run("bash -c 'kill -9 $$'", S)
    assert (done.exit_code, done.timed_out) == (137, False)


@case
async def run_keeps_variables_functions_and_directory(sandbox: Sandbox) -> None:
    await sandbox.run("mkdir -p /tmp/kept; cd /tmp/kept; a=5; f() { echo f$a; }", S)
    assert await run_command(sandbox, "f; pwd; cd /app") == "f5\n/tmp/kept\n"


@case
async def run_exit_reopens_the_shell(sandbox: Sandbox) -> None:
    assert (await sandbox.run("exit 3", S)).exit_code == 3
    done = await sandbox.run("echo again", S)
    assert done.output.endswith("again\n")


@case
async def run_out_of_time(sandbox: Sandbox) -> None:
    done = await sandbox.run("echo before; sleep 1000", 0.5)
    assert (done.timed_out, done.exit_code, done.output) == (True, None, "before\n")
    assert await run_command(sandbox, "echo alive") == "alive\n"


@case
async def run_out_of_time_kills_the_process(sandbox: Sandbox) -> None:
    await sandbox.run("sleep 987654", 0.5)
    assert await run_command(sandbox, "pgrep -f 'sleep 98765[4]' | wc -l") == "0\n"


@case
async def run_out_of_time_kills_its_children(sandbox: Sandbox) -> None:
    await sandbox.run("bash -c 'sleep 987653 & sleep 987653; wait'", 0.5)
    assert await run_command(sandbox, "pgrep -f 'sleep 98765[3]' | wc -l") == "0\n"


@case
async def run_large_output_is_cut_in_the_middle(sandbox: Sandbox) -> None:
    done = await sandbox.run("echo head; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo tail", S)
    assert done.output.startswith("head\nx")
    assert done.output.endswith("x\ntail\n")
    assert done.truncated_bytes > 0


@case
async def run_invalid_utf8_is_replaced(sandbox: Sandbox) -> None:
    assert await run_command(sandbox, "printf 'a\\377b\\n'") == "a\ufffdb\n"


@case
async def run_refuses_a_nul_byte(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="NUL"):
        await sandbox.run("echo \0", S)


@case
async def run_long_command(sandbox: Sandbox) -> None:
    text = "x" * 100_000
    assert await run_command(sandbox, f"v={text}; echo ${{#v}}") == "100000\n"


@case
async def run_many_in_turn(sandbox: Sandbox) -> None:
    for number in range(20):
        assert await run_command(sandbox, f"echo {number}") == f"{number}\n"


def round_trip_case(name: str, path: str, content: bytes) -> None:
    async def run(sandbox: Sandbox) -> None:
        await sandbox.write_files({path: content})
        assert await sandbox.read_file(path) == content

    CASES[f"file_{name}"] = run


def read_case(name: str, command: str, path: str, content: bytes) -> None:
    async def run(sandbox: Sandbox) -> None:
        await sandbox.run(command, S)
        assert await sandbox.read_file(path) == content

    CASES[f"file_{name}"] = run


def unreadable_case(name: str, command: str, path: str, number: int) -> None:
    async def run(sandbox: Sandbox) -> None:
        await sandbox.run(command, S)
        await assert_read_fails(sandbox, path, number)
        await sandbox.run(f"rm -f {path}", S)

    CASES[f"file_{name}"] = run


round_trip_case("binary", "/tmp/binary", EVERY_BYTE)
round_trip_case("empty", "/tmp/empty", b"")
round_trip_case("large", "/tmp/large", EVERY_BYTE * 200)
round_trip_case("strange_name", "/tmp/ a'\"$(touch x);*\n-é", b"1")
read_case("written_by_a_command", "printf from-inside > /tmp/inside", "/tmp/inside", b"from-inside")
read_case("below_a_link", "rm -rf /tmp/up; ln -s / /tmp/up", "/tmp/up/app/given.txt", b"given\n")
unreadable_case("missing", "true", "/tmp/no-such-file", errno.ENOENT)
unreadable_case("missing_with_its_folder", "true", "/no-such-folder/file", errno.ENOENT)
unreadable_case("is_a_directory", "mkdir -p /tmp/folder", "/tmp/folder", errno.EISDIR)
unreadable_case("is_a_link", "ln -sf /etc/shadow /tmp/link", "/tmp/link", errno.ELOOP)
unreadable_case("is_a_device", "rm -f /tmp/fifo; mkfifo /tmp/fifo", "/tmp/fifo", errno.EINVAL)
unreadable_case("sparse_and_huge", "truncate -s 1G /tmp/sparse", "/tmp/sparse", errno.EFBIG)


@case
async def file_text(sandbox: Sandbox) -> None:
    await sandbox.write_files({"/tmp/text": "žluť\n".encode()})
    assert await sandbox.read_file("/tmp/text") == "žluť\n".encode()
    assert await run_command(sandbox, "cat /tmp/text") == "žluť\n"


@case
async def file_written_over(sandbox: Sandbox) -> None:
    await sandbox.write_files({"/tmp/over": b"long content"})
    await sandbox.write_files({"/tmp/over": b"short"})
    assert await sandbox.read_file("/tmp/over") == b"short"


@case
async def file_makes_its_folders(sandbox: Sandbox) -> None:
    await sandbox.write_files({"/tmp/new/deep/file": b"1", "/tmp/new/other": b"2"})
    assert await run_command(sandbox, "cat /tmp/new/deep/file /tmp/new/other") == "12"


@case
async def file_mode(sandbox: Sandbox) -> None:
    await sandbox.write_files({"/tmp/program": b"#!/bin/sh\necho ran\n"}, mode=0o755)
    assert await run_command(sandbox, "/tmp/program; stat -c %a /tmp/program") == "ran\n755\n"


@case
async def file_too_large_to_read(sandbox: Sandbox) -> None:
    await sandbox.run("head -c 2000 /dev/zero > /tmp/two-thousand", S)
    await assert_read_fails(sandbox, "/tmp/two-thousand", errno.EFBIG, max_bytes=1999)
    assert len(await sandbox.read_file("/tmp/two-thousand", 2000)) == 2000


@case
async def file_relative_path(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="absolute"):
        await sandbox.read_file("tmp/x")
    with pytest.raises(ValueError, match="absolute"):
        await sandbox.write_files({"tmp/x": b""})


@case
async def file_cannot_be_written_where_nothing_can(sandbox: Sandbox) -> None:
    with pytest.raises(OSError):  # noqa: PT011  the kernel chooses the number
        await sandbox.write_files({"/proc/no/such": b""})


@case
async def file_under_a_file(sandbox: Sandbox) -> None:
    await sandbox.write_files({"/tmp/plain": b""})
    with pytest.raises(NotADirectoryError):
        await sandbox.write_files({"/tmp/plain/below": b""})


@case
async def tool_runs(sandbox: Sandbox) -> None:
    done = await sandbox.call_tool("shell_exec", {"id": "main", "command": "echo tool"})
    assert "tool" in done.text


@case
async def tool_errors_are_text(sandbox: Sandbox) -> None:
    for name, arguments in (("no_such_tool", {}), ("shell_exec", {}), ("shell_exec", {"id": "a", "command": ["x"]})):
        assert "rror" in (await sandbox.call_tool(name, arguments)).text
    assert "rror" in (await sandbox.call_tool("shell_exec", "echo x")).text


@case
async def a_tool_answers_whatever_it_is_given(sandbox: Sandbox) -> None:
    await sandbox.call_tool("shell_exec", {"id": "odd", "command": "true"})
    for odd in (10**400, -(10**400), "1e400", "half \ud800"):
        assert (await sandbox.call_tool("shell_wait", {"id": "odd", "wait_seconds": odd})).text


@case
async def two_at_once_do_not_mix(sandbox: Sandbox) -> None:
    """One shell runs one command at a time: beside it, files go in and out."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(sandbox.run("sleep 0.3; echo slow", S))
        content = await sandbox.read_file("/app/given.txt")
    assert (content, running.result().output) == (b"given\n", "slow\n")


@case
async def tree_of_regular_files(sandbox: Sandbox) -> None:
    await sandbox.run("mkdir -p /tmp/tree/a/b; cd /tmp/tree; echo 1 > a/b/f; echo 2 > g", S)
    await sandbox.run("ln -s /etc/passwd l; mkfifo p; cd /app", S)
    assert await sandbox.read_tree("/tmp/tree") == {"a/b/f": b"1\n", "g": b"2\n"}


@case
async def tree_that_is_absent_or_too_large(sandbox: Sandbox) -> None:
    await sandbox.run("mkdir -p /tmp/tree; head -c 2000 /dev/zero > /tmp/tree/f", S)
    for path, number in (("/tmp/none", errno.ENOENT), ("/tmp/tree", errno.EFBIG)):
        with pytest.raises(OSError) as caught:  # noqa: PT011  the number says which
            await sandbox.read_tree(path, 1999)
        assert caught.value.errno == number


@case
async def tree_with_a_name_that_is_no_text(sandbox: Sandbox) -> None:
    await sandbox.run("mkdir -p /tmp/odd; touch $'/tmp/odd/\\xff'", S)
    assert list((await sandbox.read_tree("/tmp/odd")).values()) == [b""]
