"""If these fail, the agent's program can read the expected results or runs as root at isolation `toolchain`."""

from __future__ import annotations

import pytest

from sandbox.grading.isolation.decision import find_isolation_risk
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.validation.task_warnings import find_task_warnings

AS = "start-stop-daemon -S -q -c 65534:65534"
RUN = f"{AS} -x /app/program"
QUIET = "< /dev/null 2> /dev/null"
STARTS = {"run.sh": f"#!/bin/bash\n{RUN} < /dev/null &> /dev/null\n".encode(), "cases": b"12 144\n"}


@pytest.mark.parametrize(
    "line",
    [
        f"got=$({RUN} -- 12 </dev/null 2>/dev/null)",
        f'got=$(timeout 30 {RUN} -- "$n" 2>&1 < /dev/null)\ngrep -qx 144 <<< "$got"',
        f'while read -r n wanted; do got=$({RUN} -- "$n" {QUIET}); done < $TEST_DIR/cases',
        f'got=$({RUN} <<< "$n" 2> /logs/verifier/said)',
        f"got=$({RUN} 2>&- <<E\n12\nE\n)",
        f"got=$({RUN} < /tests/cases 2>/dev/null)",
        f"! {RUN} > /dev/null 2>&1 < /dev/null",
        f"< /dev/null {RUN} &> /dev/null",
        f'run() {{\n    p=$1; shift\n    {AS} -x "$p" -- "$@" {QUIET}\n}}\ngot=$(run /app/program 12)',
        f"run() {{ {RUN} < /dev/null; }}\nboth() {{ run; run; }} 2> /dev/null\ngot=$(both 2>&1)",
        f"export LC_ALL=C LANG=C; {{ {RUN} < /dev/null; }} >& /dev/null || exit 1",
        f"cat /app/x | grep y; {RUN} > /dev/null {QUIET}; echo > /dev/null",
        "command -v start-stop-daemon | grep x",
        "bash $TEST_DIR/run.sh",
        f"run() {{ {RUN} > /dev/null {QUIET}; }}\nTEST_DIR=/tests run; N=12 {RUN} > /dev/null {QUIET}",
    ],
)
def test_a_program_without_input_from_the_tests_is_not_a_risk(line: str):
    assert find_isolation_risk(f"#!/bin/bash\n{line}\n", STARTS) is None


ITS_INPUT, ITS_NEIGHBOURS, BESIDE = "the tests' own input", "what it is joined with", "let nothing run beside"
OPENED, ARGUMENTS, EXPORTED, ROOT = "open no descriptor", "could read these arguments", "do not export", "root"
VERDICT = "could print a verdict"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"got=$({RUN} -- 12)", ITS_INPUT),
        (f"while read -r n; do got=$({RUN}); done < $TEST_DIR/cases", ITS_INPUT),
        (f"while read -r n; do {{ {RUN}; }} < /dev/null; done < $TEST_DIR/cases", ITS_INPUT),
        (f"{RUN} <&0", ITS_INPUT),
        (f"{RUN} < /dev/stdin", ITS_INPUT),
        (f"{RUN} < /proc/self/fd/0", ITS_INPUT),
        (f"{RUN} < /dev/null <&0", ITS_INPUT),
        (f"{RUN} < /dev/null | grep -qx 144", ITS_NEIGHBOURS),
        (f"echo 12 | {RUN} < /dev/null", ITS_NEIGHBOURS),
        (f"{RUN} <<E | grep x\nx\nE\n", ITS_NEIGHBOURS),
        (f"cat <<E | while read -r n; do {RUN} < /dev/null; done\nx\nE\n", ITS_NEIGHBOURS),
        (f'echo "$({RUN} < /dev/null)" | grep -qx 144', ITS_NEIGHBOURS),
        (f"run() {{ {RUN} < /dev/null; }}\nrun | grep -qx 144", ITS_NEIGHBOURS),
        (f"run() {{ {RUN} < /dev/null; }}\nboth() {{ run; run; }}\nboth | grep 144", ITS_NEIGHBOURS),
        (f'run() {{ "$@" | grep -qx 144; }}\nrun {RUN} < /dev/null', ITS_NEIGHBOURS),
        ("bash $TEST_DIR/run.sh | grep -qx 144", ITS_NEIGHBOURS),
        ("source $TEST_DIR/run.sh | grep -qx 144", ITS_NEIGHBOURS),
        (f"{RUN} < <(cat $TEST_DIR/cases)", BESIDE),
        (f"diff <({RUN} < /dev/null) $TEST_DIR/cases", BESIDE),
        (f"{RUN} < /dev/null &", BESIDE),
        (f"tail -f -n 144 /app/x &\n{RUN} < /dev/null", BESIDE),
        (f"exec 3< $TEST_DIR/cases\n{RUN} < /dev/null", OPENED),
        (f"while read -r -u 3 n; do {RUN} < /dev/null; done 3< $TEST_DIR/cases", OPENED),
        (f"{RUN} < /dev/null 2< $TEST_DIR/cases", OPENED),
        (f"while read -r n; do {RUN} < /dev/null; done {{cases}}< $TEST_DIR/cases", ""),
        (f"exec {{cases}}< $TEST_DIR/cases\n{RUN} < /dev/null", OPENED),
        ("bash $TEST_DIR/run.sh 12 144", ARGUMENTS),
        ("timeout 30 sh -e $TEST_DIR/run.sh 144", ARGUMENTS),
        (f"export wanted=144\n{RUN} < /dev/null", EXPORTED),
        (f"declare -x wanted=144\n{RUN} < /dev/null", EXPORTED),
        (f"set -a\n{RUN} < /dev/null", EXPORTED),
        (f"run() {{ {RUN} < /dev/null; }}\nwanted=144 run", EXPORTED),
        ("wanted=144 bash $TEST_DIR/run.sh", EXPORTED),
        ("start-stop-daemon -S -q -c 0:0 -x /app/program < /dev/null", ROOT),
        ("start-stop-daemon -S -q -c 65534 -x /app/program < /dev/null", ROOT),
        ("start-stop-daemon -S -q -c 65534:4294967296 -x /app/program < /dev/null", ROOT),
        ('start-stop-daemon -S -q -c "$user" -x /app/program < /dev/null', ROOT),
        ("start-stop-daemon -S -q -c daemon -x /app/program < /dev/null", ROOT),
        ("start-stop-daemon -S -q -x /app/program < /dev/null", ROOT),
        (f"got=$({RUN} < /dev/null)", VERDICT),
        (f"got=$({RUN} < /dev/null 2> /dev/stdout 1>&2)", VERDICT),
        (f"{RUN} {QUIET} && echo PASSED a", VERDICT),
        (f"{RUN} < /dev/null 2>&1 > /dev/null", VERDICT),
        (f"{RUN} < /dev/null > /dev/tty 2> /dev/null", VERDICT),
        (f"run() {{ {RUN} < /dev/null; }}\ngot=$(run)", VERDICT),
        (f"run() {{ {RUN} < /dev/null; }}\nboth() {{ run; run > /dev/null 2>&1; }}\nboth", VERDICT),
        (f"{AS} -x $program < /dev/null", ""),
        (f'{AS} -x "$@" < /dev/null', ""),
        (f"{AS} -b -x /app/program < /dev/null", ""),
        ("start-stop-daemon -S -q -c nobody -x /app/program < /dev/null", "/etc/passwd"),
    ],
)
def test_a_risk_from_a_started_program_is_named_with_a_remedy(line: str, why: str):
    found = find_isolation_risk(f"#!/bin/bash\n{line}\n", STARTS)
    assert found is not None
    assert why in found.instead


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(['/app/x'], user='nobody')",
        'subprocess.run(["/app/x"], user=65534, group = "nogroup")',
        'AS = {"user": "nobody"}',
        'RUN_USER = "nobody"',
        "os.setuid(pwd.getpwnam('nobody').pw_uid)",
        'subprocess.run(["su", "nobody", "-s", "/bin/sh", "-c", "/app/x"])',
    ],
)
@pytest.mark.parametrize("level", [GradingLevel.SAME, GradingLevel.ARTIFACTS])
def test_naming_the_user_nobody_is_a_risk_and_validate_suggests_65534(text: str, level: GradingLevel):
    script, tests = "#!/bin/bash\nuvx pytest /tests/test_outputs.py\n", {"test_outputs.py": text.encode()}
    found = find_isolation_risk(script, tests)
    assert found is not None
    assert "65534" in found.instead
    warnings = list(
        find_task_warnings(Task("t", "", run_tests=script, tests=tests, artifacts=("/app",), grading=level))
    )
    assert sum("name 65534" in each for each in warnings) == 1


@pytest.mark.parametrize("text", ["subprocess.run(['/app/x'], user=65534)", "assert path.owner() == 'nobody'"])
def test_using_user_number_65534_is_not_a_risk(text: str):
    assert (
        find_isolation_risk("#!/bin/bash\nuvx pytest /tests/test_outputs.py\n", {"test_outputs.py": text.encode()})
        is None
    )


@pytest.mark.parametrize(
    ("script", "is_sure"),
    [
        (f"uv venv v; source v/bin/activate; got=$({RUN} {QUIET}); pytest /tests/test_outputs.py", True),
        (f"uv venv v; got=$({RUN} {QUIET}); source v/bin/activate; pytest /tests/test_outputs.py", False),
        (f"run() {{ {RUN} {QUIET}; }}\nuv venv v; got=$(run); source v/bin/activate", False),
        ("uv venv v; bash $TEST_DIR/run.sh; source v/bin/activate", False),
        ("uv venv v; ls; source v/bin/activate", True),
    ],
)
def test_an_environment_activated_after_a_program_ran_is_a_risk(script: str, is_sure: bool):
    assert (find_isolation_risk(f"#!/bin/bash\n{script}\n", {**STARTS, "test_outputs.py": b""}) is None) is is_sure


@pytest.mark.parametrize("text", ["subprocess.run(['/app/x'], user=65534)", "subprocess.run(['/app/x'])"])
def test_validate_warns_about_tests_that_start_programs_as_another_user(text: str):
    script = "#!/bin/bash\nuvx pytest /tests/test_outputs.py\n"
    warnings = list(find_task_warnings(Task("t", "", run_tests=script, tests={"test_outputs.py": text.encode()})))
    assert sum("read as that user" in each for each in warnings) == ("user" in text)
