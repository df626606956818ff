"""If these fail, a public test script is refused what the toolchain has, or is told that a missing package is there."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.isolation.decision import (
    Isolation,
    calls_plain_programs,
    decide_isolation,
    starts_plain_pytest,
)
from sandbox.grading.isolation.script_shell import choose_shell
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.families import FAMILIES
from sandbox.tasks.formats.generated.generator import make_task
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.toolchain.in_container.layout import BASH, BUSYBOX
from sandbox.toolchain.in_container.shim_rules import (
    ShimInstaller,
    ShimMissing,
    ShimNothingToDo,
    ShimPassThrough,
    ShimRun,
    ShimTests,
    ShimVenv,
    decide_shim_action,
    has_python_package,
)
from sandbox.validation.network_needs import find_network_needs
from sandbox.validation.task_warnings import find_task_warnings
from tests.support.tasks.cheats.graders import careless_task, shell_task
from tests.support.tasks.public_test_scripts import STOCK

PLAIN = [
    "python3 -m pytest /tests",
    "cd /app && timeout 60 pytest /tests -rA",
    "pip install pytest==8.4.1 -q && python -m pytest -v /tests/test_outputs.py",
    'run() { "$@"; }; run pytest /tests/test_a.py',
]
PIECES = [*"'\"`(){};|&<>#\\\n $ax=", "$(", "${", "$((", "))", "case x in ", "esac", "<<E", "E\n", "if ", "[[ ", "]]"]
TESTS = {"test_outputs.py": b"", "test_a.py": b""}
URL = "https://installer.example/uv/0.7.13/install.sh"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("pytest -rA /tests", ShimTests("pytest", ("-rA", "/tests"))),
        ("python3 -m pytest /tests", ShimTests("pytest", ("/tests",))),
        ("python -m pip install -q pytest==8.4.1", ShimNothingToDo()),
        ("pip install harbor-rewardkit==0.2.3", ShimNothingToDo()),
        ("pip install harbor-rewardkit==0.1.7", ShimPassThrough()),
        ("rewardkit /tests", ShimTests("rewardkit", ("/tests",))),
        ("python3 -m rewardkit /tests", ShimTests("rewardkit", ("/tests",))),
        ("pip3 install pytest requests", ShimPassThrough()),
        ("pip install -r requirements.txt", ShimPassThrough()),
        ("python3 /app/check.py", ShimPassThrough()),
        ("apt-get update", ShimNothingToDo()),
        ("apt-get install -y --no-install-recommends curl wget=1.2", ShimNothingToDo()),
        ("apt install -y curl tmux git", ShimMissing(("tmux", "git"))),
        ("apt-get purge curl", ShimPassThrough()),
        (f"curl -LsSf {URL}", ShimInstaller("")),
        (f"curl -LsSf {URL} -o /tmp/get.sh", ShimInstaller("/tmp/get.sh")),
        (f"curl -fsSLO {URL}", ShimInstaller("install.sh")),
        (f"wget -qO- {URL}", ShimInstaller("")),
        (f"wget -q -O - {URL}", ShimInstaller("")),
        (f"wget {URL}", ShimInstaller("install.sh")),
        ("curl http://localhost:8080/uv", ShimPassThrough()),
        ("uv --version", ShimPassThrough()),
        ("uv init", ShimNothingToDo()),
        ("uv init --bare", ShimNothingToDo()),
        ("uv init here", ShimPassThrough()),
        ("uv venv", ShimVenv(".venv")),
        ("uv venv -p 3.13 --seed .tbench-testing", ShimVenv(".tbench-testing")),
        ("uv venv -p 3.9", ShimPassThrough()),
        ("uv add pytest==8.4.1", ShimNothingToDo()),
        ("uv add pytest==8.4.1 pandas", ShimMissing(("pandas",))),
        ("uv pip install -r requirements.txt", ShimPassThrough()),
        ("uv pip install --index-url http://x.example pytest", ShimPassThrough()),
        ("uv run pytest /tests/x.py -rA -p no:cache", ShimRun(("pytest", "/tests/x.py", "-rA", "-p", "no:cache"))),
        ("uv run --with pytest==8.4.1 -m pytest -q", ShimRun(("python", "-m", "pytest", "-q"))),
        ("uv run check.py a", ShimRun(("python", "check.py", "a"))),
        ("uv run --with numpy pytest", ShimMissing(("numpy",))),
        ("uvx -p 3.13 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 pytest -rA", ShimRun(("pytest", "-rA"))),
        ("uvx --python 3.12 --with pytest==8.4.1 pytest", ShimRun(("pytest",))),
        ("uvx -p 3.14 pytest", ShimPassThrough()),
        ("uvx --with=pytest-json-ctrf pytest@8.4.1 -q", ShimRun(("pytest", "-q"))),
        ("uvx -w requests pytest", ShimMissing(("requests",))),
        ("uvx --from pytest-json-ctrf pytest", ShimRun(("pytest",))),
        ("uvx ruff check", ShimMissing(("ruff",))),
        ("uv tool run pytest", ShimRun(("pytest",))),
        ("uvx --from harbor-rewardkit rewardkit /tests", ShimRun(("rewardkit", "/tests"))),
        ("uv tool run --from harbor-rewardkit==0.2.3 python -m rewardkit /tests", ShimRun(("rewardkit", "/tests"))),
        ("uvx --from harbor-rewardkit==0.1.7 rewardkit /tests", ShimMissing(("harbor-rewardkit==0.1.7",))),
        ("uvx --from harbor-rewardkit[all] rewardkit /tests", ShimMissing(("harbor-rewardkit[all]",))),
        ("uvx --from harbor-rewardkit -w pillow rewardkit /tests", ShimMissing(("pillow",))),
        ("uv run --with harbor-rewardkit rewardkit /tests", ShimRun(("rewardkit", "/tests"))),
        ("uv tool install -q harbor-rewardkit", ShimNothingToDo()),
        ("uv tool install harbor-rewardkit --with pillow", ShimMissing(("pillow",))),
        ("uv tool install pytest", ShimPassThrough()),
        ("uv python install 3.13", ShimNothingToDo()),
        ("uv python install 3.8", ShimPassThrough()),
        ("uv sync", ShimPassThrough()),
    ],
)
def test_each_call_gets_its_shim_action(call: str, expected: object):
    program, *arguments = shlex.split(call)
    assert decide_shim_action(program, arguments) == expected


@pytest.mark.parametrize(
    ("requirement", "there"),
    [
        ("pytest", True),
        ("PyTest_JSON.ctrf", True),
        ("pytest>=8,<9", True),
        ("pytest[dev]==8.4.1", True),
        ("harbor_rewardkit >= 0.2", True),
        ("harbor-rewardkit[image]", False),
        ("pytest == 8.4.1", True),
        ("pytest@latest", True),
        ("pytest==8.4", False),
        ("pytest<8.4.1", False),
        ("pytest!=8.4.1", False),
        ("pytest===8.4.1", False),
        ("pytest~=8.4", False),
        ("pytest==8.4.1; python_version>'3'", False),
        ("pytest @ file:///app/pytest", False),
        ("pandas", False),
        ("./pytest", False),
        ("", False),
    ],
)
def test_a_package_is_in_the_toolchain_only_in_its_installed_version(requirement: str, there: bool):
    assert has_python_package(requirement) is there


@pytest.mark.parametrize("name", STOCK)
def test_a_stock_script_needs_no_network_and_runs_on_the_toolchain(name: str):
    script, _ = STOCK[name]
    assert not find_network_needs(Task("a", "b", run_tests=script))
    assert decide_isolation(script, TESTS) is Isolation.TOOLCHAIN
    assert decide_isolation(script, TESTS, verifier=False) is Isolation.IMAGE


@pytest.mark.parametrize(
    "line",
    [
        "exec /usr/bin/python3 -I x.py",
        "pip install pytest && pytest",
        "uv run python -m pytest",
        "uv run --with numpy pytest",
        "rewardkit /tests",
        "python3 -m rewardkit /tests",
        "uvx --from harbor-rewardkit==0.1.7 rewardkit /tests",
        "uvx --from harbor-rewardkit rewardkit",
        "uvx --from harbor-rewardkit rewardkit .",
        "uvx --from harbor-rewardkit rewardkit /tests /app/tests",
        "uvx --from harbor-rewardkit rewardkit /tests --workspace /app*",
        "uvx --from harbor-rewardkit rewardkit /tests --workspace $where",
        "uvx --from harbor-rewardkit rewardkit /tests --output /app/reward.json",
        "uvx --from harbor-rewardkit rewardkit /tests --judge x",
        "uv add pandas",
        "apt-get install -y python3",
        "curl http://localhost:80/",
        "wget -q -O - http://127.0.0.1:8123/page",
        f"curl -LsSf {URL} -o /tmp/get.sh && sh /tmp/get.sh",
        'run() { shift; "$@"; }; run ls ./x',
        'run() { set -- ./x; "$@"; }; run ls',
        "start-stop-daemon -S -m -p /tmp/pid -x /app/x",
        "start-stop-daemon -S $options -x /app/x",
        "uvx pytest -rA",
        "uv run pytest tests/",
        "uv venv v; source v/bin/activate; pytest -rA",
        "source $HOME/.local/bin/env",
        "source .venv/bin/activate",
        "[ -d v ] || uv venv v; source v/bin/activate",
        "if [ ! -d v ]; then uv venv v; fi; source v/bin/activate",
        "(cd x && uv venv v); source v/bin/activate",
        "make() { uv venv v; }; source v/bin/activate",
        "uv venv v & source v/bin/activate",
        "uv venv v | cat; source v/bin/activate",
        "ls x && uv venv v; source v/bin/activate",
        "uv venv v; cd src 2>/dev/null; source v/bin/activate",
        "go() { cd src; }; uv venv v; go; source v/bin/activate",
        "uv() { ls; }; uv venv v; source v/bin/activate",
        "uv venv v; . $TEST_DIR/inner.sh v/bin/activate; pytest /tests/test_a.py",
        "if true; then x() { ls; }; fi; x",
        "x; x() { ls; }",
        "(x() { ls; }); x",
        "y() { x() { ls; }; }; x",
        "x() { ls; }; unset -f x; x",
        "y() { x; }; y; x() { ls; }",
        "rev /app/x",
        "sort -t, -uo/app/y /app/x",
        "sort --output=/app/y /app/x",
        "sort --comp ./x /app/x",
        'sort "$(cat /app/p)"',
        "sort /app/*",
        "sort ~/x",
        "uniq /app/x $y",
        'find "$where" -name x',
        "find /app -name x -fprintf /app/y a",
        "find /app -name *.sh",
        "uv venv v; [ -e x ] && . v/bin/activate; pytest /tests/test_a.py",
        ". ./env.sh",
        'export PATH="/app/bin:$PATH"',
        "PYTHONPATH=/app uvx pytest",
        "bash -c 'python3 -m pytest'",
        '[ "$(node x.js)" = 1 ]',
        "cd /app && make test",
        "env -i sh /tests/x.sh",
        "git -C /app fsck || exit 1",
        "git -C /app status --porcelain | grep -q . && echo FAILED x || echo PASSED x",
        "openssl verify /app/c.pem && sqlite3 /app/a.db 'select 1'",
        "jq . /app/x.json",
        "/app/check.sh",
        "/tests/inner.sh",
        "cd /app && ./run_checks",
        'eval "py"thon3 x',
        "P=python3\n$P /tests/x.py",
        "$(which python3) /tests/x.py",
        "xargs -a /tests/list jq .",
        "cat /app/x | sh",
        "sh /app/x.sh",
        "bash /tests/../app/x.sh",
        "sh /tests/inner",
        ". /tests/lib",
        "source /tests/../app/env.sh",
        "exec 3< /app/x; exec ./x",
        "timeout -k 5 30 ./x",
        "find /app -name '*.sh' -exec {} +",
        "awk 'BEGIN { system(\"x\") }'",
        "awk -f /app/x.awk",
        'f() { "$1"; }; f ./x',
        '"$@"',
        "alias ls=/app/ls; ls",
        "trap ./x EXIT",
        "read PATH < /app/x",
        "case $(./x) in a) ;; esac",
        "case x in x) ./x ;; esac",
        "if true; then ./x; fi",
        'echo "a $(echo `./x`)"',
        "diff <(./x) /app/y",
        "cat <<EOF\n$(./x)\nEOF",
        "cat <<EOF\nx",
        "echo 'a",
        "busybox sh /tests/inner.sh",
        "command jq .",
        "export $(cat /app/.env); ls",
        "hash -p /app/ls ls; ls",
    ],
)
def test_a_line_that_calls_a_program_of_the_image_uses_the_image(line: str):
    assert decide_isolation(f"#!/bin/bash\n{line}\n", {}) is Isolation.IMAGE
    assert decide_isolation("#!/bin/sh\n. $TEST_DIR/inner.sh\n", {"inner.sh": line.encode()}) is Isolation.IMAGE


@pytest.mark.parametrize(
    "line",
    [
        "# python3 would do\ntrue",
        'if grep -q x /app/y; then echo "PASSED a"; fi',
        'a=$(head -c 10 /app/answer); [ "$a" = 42 ]',
        "start-stop-daemon -S -c 65534:65534 -x /app/program -- 12 < /dev/null &> /dev/null",
        ". ${TEST_DIR:-/tests}/inner.sh",
        "uv venv v; source v/bin/activate; uv pip install pytest; pytest -rA /tests/test_a.py::test_b",
        "uvx pytest $TEST_DIR",
        "uvx --from 'harbor-rewardkit==0.2.3' rewardkit /tests > /dev/null",
        "uvx --from harbor-rewardkit python -m rewardkit $TEST_DIR --workspace=/srv --output /logs/verifier/r.json",
        "uv tool install harbor-rewardkit && rewardkit /tests --mcp 2",
        "pip install harbor-rewardkit; python3 -m rewardkit /tests",
        "cd /app; uv init && uv venv v && source v/bin/activate && pytest /tests/test_a.py",
        "uv venv /opt/v 2> /dev/null; cd src; . /opt/v/bin/activate; pytest /tests/test_a.py",
        "a=(short test summary info)\necho ${a[@]}\necho PASSED $(pwd):test_x",
        'echo "3 of 4 passed; (python was not found) & more"  # no python',
        "echo 'it is; fine' > /logs/verifier/x 2>&1 || exit 1",
        "cat > /logs/verifier/ctrf.json <<'EOF'\n{\"tests\": `$(x)`}\nEOF\necho done",
        "if [[ -f /app/x && ! ( -f /app/y ) ]]; then echo PASSED a; else echo FAILED a; fi",
        "for i in 1 2 3; do ((n = n + i)); done; echo $((n * 2)) ${n:-none} | tee -a /logs/verifier/n",
        'case "$x" in a|b) echo "(a)" ;; *"c)"*) ;; *) exit 1 ;; esac',
        'check() { grep -q "$1" /app/x; }\nrun() {\n "$@" && echo PASSED a\n}\nrun check 42',
        'names=(a b "c d"); for n in "${names[@]}"; do test -e "/app/$n"; done',
        "for name in a b.c; do [ -e /app/$name ] || exit 1; done",
        'sh -e /tests/inner.sh; bash "$TEST_DIR/inner.sh" || true',
        "timeout -k 5 30 start-stop-daemon -S -c 65534:65534 -x /app/program -- 12 </dev/null >/dev/null 2>&1",
        "timeout --signal=KILL --kill-after=5s --foreground 30 grep -q x /app/y",
        f"wget -qO- {URL} | sh && . $HOME/.local/bin/env",
        "DEBIAN_FRONTEND=noninteractive apt-get install -y curl > /dev/null 2>&1",
        "command -v python3 > /dev/null || exec 2>&1",
        r"if grep -qP 'eval\(' /app/x; then exit 1; fi; grep -rq --include='*.py' eval /app; grep --quiet x /app/y",
        "sha256sum --check /tests/sums; date -d now; readlink -e /app/x; head --lines=2 /app/x | tr -cd '[:print:]'",
        'sort -t, -k2,2n /app/x | uniq -c | sort --numeric-sort; sort -u "$TEST_DIR/a b" ${TEST_DIR}/c /app/it\\\'s',
        "find /app -maxdepth 1 \\( -name '*.sh' -o -name \"x*\" \\) -newer $TEST_DIR/x -printf '%s\\n' | wc -l",
        'diff -r /app/out "$expected"; diff <(cat /app/x) - | grep "^[<>]"; uniq -d $TEST_DIR/x',
        "head -5 x; tail -n +2 x; tail -c5 x; cut -d, -f 1,2 x; grep -rnA 2 -e -v x; cmp -s a b; stat -c %s x",
        "set -euo pipefail; export A=1 B=$(pwd); mkdir -p /logs; wc -l < /app/x",
        "function check {\n ls /app\n}\ncheck \\\n  | wc -l",
        *PLAIN,
    ],
)
def test_shell_and_toolchain_tools_use_the_toolchain(line: str):
    assert decide_isolation(f"#!/bin/bash\n{line}\n", TESTS) is Isolation.TOOLCHAIN


@pytest.mark.parametrize("line", PLAIN)
def test_the_images_pytest_runs_tests_that_need_it(line: str):
    script = f"#!/bin/bash\n{line}\n"
    assert calls_plain_programs(script, TESTS)
    assert decide_isolation(script, {**TESTS, "test_a.py": b"import numpy"}) is Isolation.IMAGE
    assert decide_isolation(script, TESTS, plain=False) is Isolation.IMAGE
    assert decide_isolation(script, TESTS, verifier=False) is Isolation.IMAGE
    assert decide_isolation(f"#!/bin/bash\nsource .venv/bin/activate\n{line}\n", TESTS) is Isolation.IMAGE


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ("-W error", Isolation.IMAGE),
        ("--pythonwarnings='error::DeprecationWarning'", Isolation.IMAGE),
        ("-W ignore::DeprecationWarning -k error", Isolation.TOOLCHAIN),
    ],
)
def test_the_images_pytest_makes_errors_of_the_warnings_of_its_own_python(options: str, used: Isolation):
    assert decide_isolation(f"#!/bin/bash\npytest /tests {options}\n", TESTS) is used
    assert decide_isolation(f"#!/bin/bash\nuvx pytest /tests {options}\n", TESTS) is Isolation.TOOLCHAIN


@pytest.mark.parametrize(
    "line", ["pytest /tests", "timeout 60 python3 -m pytest /tests", 'f() { "$@"; }\nf pytest /tests']
)
def test_a_script_that_starts_the_images_pytest_is_told_so(line: str):
    assert starts_plain_pytest(f"#!/bin/bash\n{line}\n", TESTS)


@pytest.mark.parametrize(
    "line",
    [
        "grep -q pytest /logs/agent/commands.txt",
        'if grep -rq "pytest" /app; then echo pytest; fi',
        "echo pytest python3 # pytest /tests",
        "cat <<'EOF'\npytest /tests\nEOF",
        "[ -f pytest ] && head pytest",
        "pip install pytest",
        "command -v pytest > /dev/null",
        "uv venv v; source v/bin/activate; pytest /tests",
    ],
)
def test_a_script_that_only_says_pytest_does_not_start_the_images(line: str):
    """Its tests are then started by uvx."""
    script = f"#!/bin/bash\n{line}\nuvx pytest /tests\n"
    assert decide_isolation(script, TESTS) is Isolation.TOOLCHAIN
    assert not starts_plain_pytest(script, TESTS)
    assert not [each for each in find_task_warnings(Task("a", "b", run_tests=script, tests=TESTS)) if "pytest" in each]


def test_rewardkit_with_a_judge_is_left_to_the_image_and_the_network():
    script = "#!/bin/bash\nuvx --from harbor-rewardkit rewardkit /tests\n"
    judge = {"a/quality.toml": b"[[criterion]]\ndescription = 'x'\n"}
    assert decide_isolation(script, {"a/checks.py": b"", "reward.toml": b"[[reward]]\n"}) is Isolation.TOOLCHAIN
    assert decide_isolation(script, judge) is Isolation.IMAGE
    assert [each.what for each in find_network_needs(Task("a", "b", run_tests=script, tests=judge))] == [
        "rewardkit's judge of a/quality.toml"
    ]
    assert not find_network_needs(Task("a", "b", run_tests="pytest /tests", tests=judge))


@pytest.mark.parametrize(
    "line",
    [
        "command -v python3 > /dev/null && cat /app/x",
        "uvx -p 3.13 -w pytest==8.4.1 pytest /tests/test_outputs.py",
        "uv run pytest /tests/test_outputs.py",
    ],
)
def test_a_script_that_only_looks_a_program_up_or_has_uv_run_it_has_no_plain_shims(line: str):
    assert not calls_plain_programs(f"#!/bin/bash\n{line}\n", TESTS)
    assert decide_isolation(f"#!/bin/bash\n{line}\n", TESTS) is Isolation.TOOLCHAIN


@pytest.mark.parametrize(
    "line",
    [
        'n=$(cat /app/n); [[ "$n" -eq 42 ]] && echo PASSED a',
        "read -r n < /app/n; (( n == 42 )) && echo PASSED a",
        "read -r n < /app/n; echo $((n + 1)) $[n]",
        "for n in $(cat /app/n); do echo ${a[$n]}; done",
        "n=$(cat /app/n); echo ${a:n:2}",
        "for ((i = 0; i < $1; i++)); do echo $i; done",
        "let n=$(cat /app/n)",
        "declare -i n=$(cat /app/n)",
        "local -n n=$(cat /app/n)",
        "n=$(cat /app/n); echo ${!n}",
        "n=$(cat /app/n); echo ${n@P}",
        'n=$(cat /app/n); [ -v "$n" ] && echo PASSED a',
        'printf -v "$(cat /app/n)" 1',
        'read "$(cat /app/n)"',
        "mapfile -C /app/x lines < /app/n",
        'awk "$(cat /app/p)" /app/x',
        'awk -v x="$y" "$p" /app/x',
        "find $(cat /app/p)",
        "cp /app/conftest.py /tests/; uvx pytest /tests",
    ],
)
def test_evaluating_the_agents_data_as_an_expression_uses_the_image(line: str):
    """As an expression or an option it would select the tests that run."""
    assert decide_isolation(f"#!/bin/bash\n{line}\n", {}) is Isolation.IMAGE


@pytest.mark.parametrize(
    "line",
    [
        "ls /app; [[ $? -eq 0 ]] && echo PASSED a",
        "passed=0; for i in 1 2; do passed=$((passed + 1)); done; [[ $passed -ge 2 && ${#a[@]} -lt 3 ]] && exit 1",
        'for ((i = 0; i < 3; i++)); do echo "${names[$i]} ${names[@]} ${!names[@]} ${x:-none}"; done',
        'n=$(cat /app/n); [ "$n" -eq 42 ] && [[ "$n" == 42 ]] && printf "%s" "$n"',
    ],
)
def test_arithmetic_on_the_scripts_numbers_uses_the_toolchain(line: str):
    assert decide_isolation(f"#!/bin/bash\n{line}\n", {}) is Isolation.TOOLCHAIN


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_script_gets_an_isolation(script: str):
    assert decide_isolation(script, {}) in Isolation


def test_generated_tests_use_only_the_toolchain():
    tasks = [make_task(family, 1, TaskSplit.TRAIN) for family in FAMILIES]
    assert {decide_isolation(task.run_tests, task.tests) for task in tasks} == {Isolation.TOOLCHAIN}


def test_tests_that_start_the_agents_program_by_name_use_the_image():
    careful, careless = shell_task(GradingLevel.SAME), careless_task(GradingLevel.SAME)
    assert decide_isolation(careful.run_tests, careful.tests) is Isolation.TOOLCHAIN
    assert decide_isolation(careless.run_tests, careless.tests) is Isolation.IMAGE


@pytest.mark.parametrize(
    ("first", "argv", "ours"),
    [
        ("", (BASH, "--noprofile", "--norc"), True),
        ("#!/bin/sh -e", (BASH, "--noprofile", "--norc", "-e"), True),
        ("#!/usr/bin/env bash", (BASH, "--noprofile", "--norc"), True),
        ("#! /bin/bash -eu", (BASH, "--noprofile", "--norc", "-eu"), True),
        ("#!/usr/bin/env python3", (), False),
        ("#!/opt/sh", (), False),
    ],
)
def test_a_script_without_an_interpreter_or_with_a_shell_gets_the_toolchains_bash(
    first: str, argv: tuple[str, ...], ours: bool
):
    assert choose_shell(f"{first}\n", verifier=True) == (argv, ours)
    if "bash" in first:
        assert choose_shell(f"{first}\n", verifier=False) == (("/bin/bash", *argv[1:]), False)
    elif ours:
        assert choose_shell(f"{first}\n", verifier=False) == ((BUSYBOX, "sh", *argv[3:]), True)
