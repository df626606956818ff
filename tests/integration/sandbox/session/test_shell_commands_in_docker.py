"""If these fail, something of ours is in the shell that the agent types into: its commands break it, or it shows."""

from __future__ import annotations

import pytest
import pytest_asyncio

from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.shell import SandboxShell
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="shell", instruction="")
S = 20.0
LOOPS = "bash: {}: only meaningful in a `for', `while', or `until' loop\n"
DONE = "[1]+  Done                    "
UNFINISHED = ("bash: syntax error: unexpected end of file\n", 2)
ALIVE = ("echo $X", "kept\n")

TYPED: dict[str, list[tuple[str, str] | tuple[str, str, int]]] = {
    "continue": [("[ -f /etc/passwd ] && continue; echo after", LOOPS.format("continue") + "after\n")],
    "break": [("break; echo after", LOOPS.format("break") + "after\n")],
    "return": [("return 3", "bash: return: can only `return' from a function or sourced script\n", 2)],
    "words that sed knows": [("U=bob PWD=hunter2; echo $U $PWD", "bob hunter2\n")],
    "read into PWD": [("read -r U PWD <<< 'a b'; echo $U $PWD", "a b\n")],
    "no PWD": [("unset PWD; echo ${PWD-none}", "none\n"), ("cd /usr; pwd", "/usr\n")],
    "readonly PWD": [("readonly PWD", ""), ("echo $PWD", "/app\n")],
    "status": [
        ("grep -q nosuch /etc/passwd", "", 1),
        ("if [ $? -eq 0 ]; then echo FOUND; else echo MISSING; fi", "MISSING\n"),
        ("(exit 7)", "", 7),
        ("echo $?", "7\n"),
    ],
    "statuses of a pipeline": [("true | (exit 4) | false", "", 1), ("echo ${PIPESTATUS[@]}", "0 4 1\n")],
    "last word": [("echo one two", "one two\n"), ("echo $_", "two\n")],
    "history": [("echo a; # b", "a\n"), ("history", "    1  X=kept\n    2  echo a; # b\n    3  history\n")],
    "exclamation marks": [('echo "!x" !!', "!x !!\n"), ("set -H", ""), ("!!", "set -H\n")],
    "lines": [("echo $LINENO", "2\n"), ("echo $LINENO\n\necho $LINENO", "3\n5\n")],
    "arguments": [('echo $0 "$*" $#; set -- a b', "bash  0\n"), ('echo "$*"', "a b\n")],
    "trace": [("set -x", ""), ("echo hi", "+ echo hi\nhi\n"), ("set +x", "+ set +x\n")],
    "trace to a file": [
        ("exec 9> trace; BASH_XTRACEFD=9; set -x", ""),
        ("echo hi; set +x", "hi\n"),
        ("cat trace", "+ echo hi\n+ set +x\n"),
    ],
    "PS4": [("PS4='$? $LINENO> '; set -x", ""), ("echo hi; set +x", "0 3> echo hi\nhi\n0 3> set +x\n")],
    "verbose": [("set -v", ""), ("echo hi", "echo hi\nhi\n"), ("set +v", "set +v\n")],
    "DEBUG": [("trap 'echo \"<$BASH_COMMAND>\"' DEBUG", ""), ("echo hi; trap DEBUG", "<echo hi>\nhi\n<trap DEBUG>\n")],
    "ERR and its neighbours": [("trap 'echo err $?' ERR", ""), ("true", ""), ("false", "err 1\n", 1)],
    "CONT": [("trap 'echo continued' CONT", ""), ("echo a", "a\n"), ("kill -CONT $$", "continued\n")],
    "CHLD": [("trap 'echo child' CHLD", ""), ("echo a", "a\n"), ("/bin/true", "child\n")],
    "TERM": [("kill $$", ""), ("trap 'echo term' TERM; kill $$", "term\n")],
    "PROMPT_COMMAND": [
        ("PROMPT_COMMAND='echo prompt $?'", "prompt 0\n"),
        ("false", "prompt 1\n", 1),
        ("unset PROMPT_COMMAND", ""),
    ],
    "prompts": [("PS1='prompt> ' PS2='more> '", ""), ("echo a\necho \\\nb", "a\nb\n")],
    "carriage returns": [
        ("printf 'a\\r\\nb\\r\\n' > f; tr -d '\r' < f; x='1\r\n2'; echo ${#x}", "a\nb\n4\n"),
        ("cat > f <<E\r\n1\r\nE\r\nwc -c < f", "3\n"),
    ],
    "PS0": [
        ("PS0='<$((++n)) $?>'; (exit 3)", "", 3),
        ("echo $?; false\n\necho \\\n$?", "<1 3>3\n<2 1>1\n"),
        ("unset PS0", "<3 0>"),
    ],
    "BASH_ENV": [("echo 'echo env' > env; export BASH_ENV=$PWD/env", ""), ("echo a; bash -c 'echo b'", "a\nenv\nb\n")],
    "functions like builtins": [
        ("printf() { echo own; }; read() { :; }; eval() { :; }; builtin() { :; }; command() { :; }", ""),
        ("printf a; false", "own\n", 1),
        ("enable() { :; }; trap() { :; }; exit() { :; }; set() { :; }; source() { :; }; .() { :; }; :() { :; }", ""),
        ("cd /usr; pwd", "/usr\n"),
    ],
    "builtins off": [("enable -n printf read eval echo kill", ""), ("type -t printf eval; /bin/echo a", "file\na\n")],
    "aliases": [("alias ll='echo list' printf=false", ""), ("ll; printf a", "list\n", 1)],
    "no execution": [("set -n", ""), ("echo hi", "hi\n")],
    "descriptors": [
        ("printf 'a\\nb\\n' > f; exec 3<f", ""),
        ("read -u 3 x; echo $x", "a\n"),
        ("cat <&3; exec 3<&-", "b\n"),
        ('for fd in {3..9} 10 63 100 199 200 254; do eval "exec $fd>&-"; done; echo a', "a\n"),
        ("ls /proc/$$/fd", "0\n1\n2\n255\n"),
    ],
    "standard output": [("exec 5>&1 1>out", ""), ("echo lost", ""), ("exec 1>&5; cat out", "lost\n")],
    "standard error": [("exec 2>err; ls /none", "", 2), ("echo a", "a\n"), ("grep -c none err", "1\n")],
    "closed outputs": [("exec 5>&1 1>&- 2>&-", ""), ("touch here", ""), ("exec 1>&5 2>&5; ls here", "here\n")],
    "standard input": [("echo x > in; exec 0<in", ""), ("read a; echo $a; read a", "x\n", 1), ("echo a", "a\n")],
    "unset variables": [("set -u", ""), ("echo $nope; echo a", "bash: nope: unbound variable\n", 1), ("echo b", "b\n")],
    "readonly variables": [("readonly R=1; R=2; echo a", "bash: R: readonly variable\n", 1), ("echo b", "b\n")],
    "no such program in exec": [("exec nosuch", "bash: exec: nosuch: not found\n", 127)],
    "extdebug": [
        ("shopt -s extdebug; trap '[[ $BASH_COMMAND != *skipped ]]' DEBUG", ""),
        ("echo a; echo skipped; echo b", "a\nb\n"),
    ],
    "separators": [("IFS=", ""), ("x='a b'; printf '%s,' $x", "a b,"), ("IFS=127; (exit 127)", "", 127)],
    "no such locale": [
        ("LC_ALL=xx", "bash: warning: setlocale: LC_ALL: cannot change locale (xx): No such file or directory\n"),
        ("echo a", "a\n"),
    ],
    "limits": [("ulimit -n 16; ulimit -f 0", ""), ("echo a; (exit 3)", "a\n", 3), ("echo $?", "3\n")],
    "options": [
        ("set -fkC -o posix -o pipefail; shopt -s nullglob extglob; shopt -u sourcepath", ""),
        ("echo *", "*\n"),
    ],
    "jobs": [
        (
            "sleep 0.01 & wait; (exit 5) & wait $!",
            f"[1] N\n{DONE}sleep 0.01\n[1] N\n[1]+  Exit 5                  ( exit 5 )\n",
            5,
        ),
        ("sleep 0.01 & fg; jobs", "[1] N\nsleep 0.01\n"),
        ("sh -c 'kill -STOP $$; echo on'", "\n[1]+  Stopped                 sh -c 'kill -STOP $$; echo on'\n", 147),
        ("fg", "sh -c 'kill -STOP $$; echo on'\non\n"),
        ("fg", "bash: fg: current: no such job\n", 1),
    ],
    "no job control": [("set +m; sleep 0.01 & wait; jobs", "[1] N\n"), ("sh -c 'kill -9 $$'", "", 137)],
    "line editing": [
        ("set -o vi\necho a", "a\n"),
        ("set -o emacs\necho b", "b\n"),
        ("set +o emacs\necho c; set +o vi\necho d", "c\nd\n"),
        ("f() { set -o vi; set +o vi; }; f\nshopt -so vi\nshopt -uo vi\necho e", "e\n"),
    ],
    "line editing in a function": [("f() { local -; set +o emacs; set -o vi; }; f\necho a", "a\n")],
    "line editing in another text": [
        ("eval $'set -o vi\\nset +o vi\\necho a\\necho b'\necho c", "a\nb\nc\n"),
        ("printf 'set -o emacs\\nset +o emacs\\necho a\\n' > rc; . ./rc\necho b", "a\nb\n"),
        ("exec 0</etc/passwd; set +o emacs\necho c; exec 0</dev/null", "c\n"),
    ],
    "options restored": [
        ('old=$(set +o); set -f; eval "$old"; echo *x', "*x\n"),
        ('eval "$(shopt -op)"; eval "$(shopt -p)"\necho $-', "himBs\n"),
    ],
    "parameters in a sourced file": [
        ("echo 'set -- x y' > f; . ./f a; echo $*; set -- b; . ./f; echo $*", "x y\nx y\n")
    ],
    "a coprocess": [("coproc cat; echo a >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x", "[1] N\na\n")],
    "killed programs": [
        ("sh -c 'kill -9 $$'", "Killed\n", 137),
        ("sh -c 'kill -11 $$'", "Segmentation fault\n", 139),
        ("yes | head -n 1; echo ${PIPESTATUS[@]}", "y\n141 0\n"),
    ],
    "a signal to the shell": [("kill -INT $$; echo not", "\n", 130), ("echo a", "a\n")],
    "mail and time-outs": [("TMOUT=1 MAILCHECK=0 MAILPATH=/etc/passwd", ""), ("sleep 1.2; echo a", "a\n")],
    "blank lines": [("\n\n  \n# a comment\n", ""), ("false\n\n", "", 1), ("\n", "", 1)],
    "several commands": [("echo a; if then fi\necho b", "bash: syntax error near unexpected token `then'\nb\n")],
    "an open quote": [("echo a; echo 'b\nc", *UNFINISHED)],
    "an open substitution": [
        ("echo $(ls", *UNFINISHED),
        ("echo a)", "bash: syntax error near unexpected token `)'\n", 2),
    ],
    "open braces": [("f() { echo a", *UNFINISHED), ("echo ${x:-", *UNFINISHED), ("a=(1 2", *UNFINISHED)],
    "open compounds": [
        (f"{each}", *UNFINISHED) for each in ("if true; then", "case x in", "[[ -f x", "((1 +", "a |", "b &&")
    ],
    "a backslash at the end": [("echo a \\", "a\n"), ("\\", ""), ("false \\\n && echo b \\", "", 1)],
    "an open here-document": [
        ("cat <<E\nfoo", "bash: warning: here-document at line 2 delimited by end-of-file (wanted `E')\nfoo\n"),
        (
            "cat <<A <<'B'\na\nA\nb\\",
            "bash: warning: here-document at line 6 delimited by end-of-file (wanted `B')\nb\\\n",
        ),
    ],
}


async def run_all(shell: SandboxShell, typed: list[tuple[str, str] | tuple[str, str, int]]) -> list[tuple[object, ...]]:
    """Return what was typed with the output and exit code that it had; numbers of processes are N."""
    found: list[tuple[object, ...]] = []
    for command, *_ in (("X=kept",), *typed, ALIVE):
        done = await shell.run(command, S)
        words = ["[1] N" if line.startswith("[1] ") else line for line in done.output.split("\n")]
        found.append((command, "\n".join(words), -1 if done.shell_restarted else done.exit_code))
    return found


def expected(typed: list[tuple[str, str] | tuple[str, str, int]]) -> list[tuple[object, ...]]:
    return [(each[0], each[1], each[2] if len(each) == 3 else 0) for each in (("X=kept", ""), *typed, ALIVE)]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def session(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        yield session


@pytest.mark.parametrize("name", TYPED)
async def test_a_command_has_the_effects_that_it_has_at_a_terminal_and_no_other(session: SandboxSession, name: str):
    shell = session.open_shell()
    found = await run_all(shell, TYPED[name])
    session.close_slot(shell)
    assert found == expected(TYPED[name])


async def test_the_shell_has_nothing_of_ours(session: SandboxSession):
    shell = session.open_shell()
    shown = "compgen -A function; compgen -A alias; trap -p; jobs; env | grep HIST; tr '\\0' ' ' < /proc/$$/cmdline"
    assert (await shell.run(shown, S)).output == "bash --noprofile --norc --noediting +H -i "
    ours = await shell.run("compgen -A builtin; compgen -A variable; set", S)
    assert "agent_input" not in ours.output.replace("_=agent_input\n", "")
    assert "SBX" not in ours.output
    session.close_slot(shell)


async def test_a_directory_is_the_true_one(session: SandboxSession):
    shell = session.open_shell()
    for command, directory in [
        ("ln -sfn /usr/lib link; cd link; PWD=/forged", "/usr/lib"),
        ("cd /nosuch; unset PWD OLDPWD", "/usr/lib"),
        ("mkdir -p '/tmp/a (deleted)'; cd '/tmp/a (deleted)'", "/tmp/a (deleted)"),
        ('rmdir "$(pwd -P)"', "/tmp/a (deleted)"),
    ]:
        await shell.run(command, S)
        assert shell.cwd == directory
    session.close_slot(shell)


async def test_a_shell_continues_when_it_is_continued_stopped_or_interrupted_between_commands(session: SandboxSession):
    shell = session.open_shell()
    await shell.run("X=kept; trap 'echo one' USR1", S)
    pid = (await shell.run("echo $$", S)).output.strip()
    await session.run(f"kill -CONT {pid}; kill -INT {pid}; kill -USR1 {pid}; kill -STOP {pid}; kill -CONT {pid}", S)
    done = await shell.run("echo $X", S)
    assert done.output.split() == ["one", "kept"]
    assert not done.shell_restarted
    session.close_slot(shell)


async def test_the_builtin_cannot_be_called_again(session: SandboxSession):
    shell = session.open_shell()
    await shell.run("X=kept; truncate -s 1M file; exec 3<>file 4<>file", S)
    done = await shell.run("enable -f /.sbx/agent_input.so agent_input && agent_input", S)
    assert (done.output, done.exit_code) == (
        "bash: agent_input: only PID 1 can start a shell that reads from it\n",
        1,
    )
    assert (await shell.run("enable -d agent_input; echo $X", S)).output == "kept\n"
    session.close_slot(shell)


async def test_a_long_command_is_read_at_once_and_is_not_in_the_history(session: SandboxSession):
    """bash copies the history's entry for each line of a command: 100,000 lines would take minutes."""
    shell = session.open_shell()
    lines = "123456789\n" * 100_000
    assert (await shell.run(f"echo a\ncat <<E | wc -c\n{lines}E\necho b", S)).output == "a\n1000000\nb\n"
    assert (await shell.run(f"a='{lines}'; echo ${{#a}}", S)).output == "1000000\n"
    assert (await shell.run("cat <<E\nshort\nE", S)).output == "short\n"
    assert (await shell.run("history", S)).output == (
        "    1  echo a\n    2  echo b\n    3  cat <<E\nshort\nE\n\n    4  history\n"
    )
    session.close_slot(shell)


async def test_no_terminal_can_be_opened(session: SandboxSession):
    shell = session.open_shell()
    done = await shell.run("for each in /dev/tty /dev/pts/* /proc/$$/fd/255; do : < $each; done 2>&1", S)
    assert {line.rsplit(": ")[-1] for line in done.output.splitlines()} == {
        "No such device or address",
        "Device or resource busy",
    }
    session.close_slot(shell)


ENVIRONMENTS: dict[str, tuple[dict[str, str], list[tuple[str, str]]]] = {
    "a trace": ({"SHELLOPTS": "xtrace:verbose"}, [("echo a", "echo a\n+ echo a\na\n")]),
    "line editing": ({"SHELLOPTS": "vi", "BASHOPTS": "extdebug"}, [("echo a", "a\n"), ("echo b", "b\n")]),
    "functions": (
        {f"BASH_FUNC_{name}%%": "() { echo own; }" for name in ("enable", "set", "unset", "exit", "agent_input")},
        [("echo a", "a\n"), ("enable", "own\n")],
    ),
    "a prompt's command": (
        {"PROMPT_COMMAND": "echo 'a  '$((n++))"},
        [("env | grep -c PROMPT", "a  0\n1\na  1\n"), (":", "a  2\n")],
    ),
    "prompts": ({"PS0": "ps0 ", "PS1": "$(echo ps1)", "TMOUT": "1"}, [("echo a", "ps0 a\n")]),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
async def test_an_images_variables_act_on_the_agents_commands_only(pool: SandboxPool, name: str):
    variables, typed = ENVIRONMENTS[name]
    async with pool.acquire(Task(id="shell", instruction="", env=variables)) as session:
        assert [(command, (await session.run(command, S)).output) for command, _ in typed] == typed


async def test_an_image_whose_bash_cannot_load_builtins_says_so(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("mv /bin/bash /bin/other; cp /.sbx/bash /bin/bash; exit", S)
        for _ in range(2):
            done = await session.run("echo hi", S)
            assert done.output.endswith(
                "the image's bash cannot load builtins, which the agent's commands need (is it static?)\n"
            )
            assert done.exit_code == 127


async def test_an_image_without_bash_says_so(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("mv /bin/bash /bin/other; exit", S)
        done = await session.run("echo hi", S)
        assert (done.output, done.exit_code) == ("the image has no bash, which runs the agent's commands\n", 127)


async def test_a_program_in_bashs_place_cannot_take_pid_1s_memory(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        hostile = "#!/bin/sh\nexec 2>&5; (: > /proc/self/fd/3); truncate -s 0 /proc/self/fd/3; exit 9\n"
        await session.write_files({"/app/bash": hostile.encode()}, mode=0o755)
        await session.run("mv /bin/bash /bin/other; cp /app/bash /bin/bash; exit", S)
        for _ in range(2):
            done = await session.run("x" * 100_000, S)
            assert done.exit_code == 9
            assert done.output.count("ermitted") == 2
        await session.write_files({"/app/alive": b""})
