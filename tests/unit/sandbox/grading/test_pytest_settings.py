"""If these fail, tests that read the agent's pytest settings count as isolated, and `validate` does not report it."""

from __future__ import annotations

import pytest

from sandbox.grading.isolation.decision import Isolation, decide_isolation
from sandbox.grading.isolation.pytest_settings import has_pytest_settings

TESTS = {"test_outputs.py": b"def test_a(): pass\n", "unit/test_b.py": b"", "run.sh": b"true\n"}
PYTEST = "uvx -w pytest==8.4.1 pytest"


def isolation(line: str) -> Isolation:
    return decide_isolation(f"#!/bin/bash\n{line}\n", TESTS)


@pytest.mark.parametrize(
    "call",
    [
        "-c /app/pytest.ini /tests/test_outputs.py",
        "-c/app/pytest.ini /tests/test_outputs.py",
        "--config-file=/app/pytest.ini /tests/test_outputs.py",
        "--rootdir=/app /tests/test_outputs.py",
        "--confcutdir=/ /tests/test_outputs.py",
        "-p evil /tests/test_outputs.py",
        "-pevil /tests/test_outputs.py",
        "-o pythonpath=/app /tests/test_outputs.py",
        "--override-ini=pythonpath=/app /tests/test_outputs.py",
        "--import-mode=append /tests/test_outputs.py",
        "--pyargs evil /tests/test_outputs.py",
        "-n 4 /tests/test_outputs.py",
        "--timeout 30 /tests/test_outputs.py",
        "/tests/test_outputs.py /app/tests",
        "/tests/test_outputs.py tests",
        "/tests/test_missing.py",
        "/tests/test_outputs.py /tests/missing",
        "/tests/test_outputs.py @/app/arguments",
        "/tests/test_outputs.py $(cat /app/options)",
        "/tests/test_outputs.py $OPTIONS",
        '-k "$(cat /app/which)" /tests/test_outputs.py',
        "-k * /tests/test_outputs.py",
        "-k {a,-p,evil} /tests/test_outputs.py",
        "-rA -k test_a",
        "--ctrf /app/ctrf.json /tests/test_outputs.py",
        "--junitxml=/tmp/junit.xml /tests/test_outputs.py",
    ],
)
def test_a_pytest_call_with_risky_options_uses_the_images_python(call: str):
    assert isolation(f"{PYTEST} {call}") is Isolation.IMAGE
    assert isolation(f"uv venv v; . v/bin/activate\npytest {call}") is Isolation.IMAGE


@pytest.mark.parametrize(
    "call",
    [
        "--ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA",
        '"$TEST_DIR/test_outputs.py" -vvs --tb=short --maxfail 1 -p no:cacheprovider -pno:randomly',
        "${TEST_DIR:-/tests}/unit -xq -rfE --junitxml=/logs/verifier/junit.xml --color no",
        "-v --no-header --disable-warnings --durations=0 -k 'a and not b' -m \"not slow\" /tests",
        "-W ignore::DeprecationWarning /tests/test_outputs.py::test_a /tests/unit/test_b.py",
        "/tests/test_outputs.py::test_x[a-1] -rA 2>&1 | tee /logs/verifier/out.txt",
    ],
)
def test_a_usual_pytest_call_uses_the_toolchain(call: str):
    assert isolation(f"{PYTEST} {call}") is Isolation.TOOLCHAIN
    assert isolation(f"uv venv v; . v/bin/activate\npytest {call}") is Isolation.TOOLCHAIN


@pytest.mark.parametrize(
    "line",
    [
        "cat /app/run.sh > /tests/run.sh",
        "sort /app/answer > /tmp/actual.txt",
        "cat /app/x >> out",
        "cat /app/x &> ${OUT:-/logs/verifier/out}",
        "cat /app/x >| /logs/verifier/../../tests/run.sh",
        "cat /app/x > /logs/other/out",
        "cat /app/x > /logs/verifier",
        "cat /app/x > /logs/verifier/$name",
        "cat /app/x > /dev/shm/out",
        "cat <<E > /tests/conftest.py\n$(cat /app/x)\nE",
        "exec 3> /app/out; cat /app/x >&3",
        "{ cat /app/x; } > /app/out",
        'f() { cat /app/x > "$1"; }; f /logs/verifier/x',
        "made=$(mktemp); cat /app/x > $made",
        "cat /app/x | tee -a /logs/verifier/x /app/y",
        'cat /app/x | tee "$out"',
        "timeout 5 tee /tests/conftest.py < /app/conftest.py",
        'run() { "$@"; }; run tee /tests/conftest.py < /app/conftest.py',
        'mkdir -p "$(cat /app/where)"',
        "uv venv $where",
        "cp -r /app/. /tmp/build/",
        "cd /tests\ncp /app/conftest.py .",
        "rm -rf /app/out",
        "ln -s /app/conftest.py /app/x",
        "sort -o /app/out /app/x",
        "uniq /app/x /tests/expected",
        "sed -n 'w /app/out' /app/x",
        "awk '{ print $1 | $2 }' /app/x",
        "find /app -name x -delete",
        "tar -xf /app/out.tar",
        "wget http://127.0.0.1/conftest.py",
        "touch /app/x",
        "TEST_DIR=/app",
        "for TEST_DIR in /app; do :; done",
        "for PATH in /app; do ls; done",
        "((PATH = 10)); ls",
    ],
)
def test_writing_to_paths_that_the_agent_may_have_linked_uses_the_image(line: str):
    """The link could lead into the tests."""
    assert isolation(f"{line}\n{PYTEST} $TEST_DIR/test_outputs.py") is Isolation.IMAGE


@pytest.mark.parametrize(
    "line",
    [
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo >&2 done; ls &> /dev/null 2>&1 >&-",
        "exec >> '/logs/verifier/out.d/log' 2>&1; echo x | tee /dev/stderr",
        "diff -u $TEST_DIR/run.sh /app/x; diff -q /app/x - < /tests/run.sh",
        "cd /tests; ls; head -1 <(cat /app/x) | cmp - /tests/expected",
        'x=3; n=$(ls /app | wc -l); [ $x -eq 3 ] && test $? -eq 0 && test "$n" -gt 2; [ 1 -eq ${#names[@]} ]',
        'TEST_DIR="${TEST_DIR:-/tests}"; bash $TEST_DIR/run.sh',
        'read -r -d "" -p "> " -t 5 x y < /app/x; IFS=, read -ra z <<< "$x"; printf -v w %s "$x"; unset -v w z',
        'true & wait; wait $!; declare -A m; local x=$1 y; readonly -a z=(1 2); echo "${@:2}" "${*:1:1}" "${z[@]:1}"',
        'x=$(cat /app/x); [[ $x == "$y" && $x =~ ^[0-9]+$ ]] || case $x in a*|"$y") true ;; esac',
    ],
)
def test_writing_only_to_safe_paths_uses_the_toolchain(line: str):
    assert isolation(f"{line}\n{PYTEST} $TEST_DIR/test_outputs.py") is Isolation.TOOLCHAIN


@pytest.mark.parametrize(
    "line",
    [
        'x=$(cat /app/answer); test -v "$x"',
        'x=$(cat /app/answer); [ -v "$x" ]',
        "test -v 'a[$x]'",
        'PS4="$(cat /app/a)"; set -x; echo',
        "export PS4='$(/app/x)'",
        "a=([$(cat /app/n)]=1)",
        'declare "a[$(cat /app/n)]=1"',
        'printf -v "a[$n]" 1',
        "printf -v a[n] 1",
        "printf -v b -v 'a[n]' 1",
        'printf "$n"',
        'printf -v"a[n]" 1',
        "read -r a[n] < /app/x",
        "read -ra 'a[n]' < /app/x",
        "while read -r i v; do read -r a[i] <<< x; done < /app/x",
        "unset 'a[n]'",
        "declare a[n]=1",
        'wait -n -p "$n"',
        "wait -n -p 'a[n]'",
        'wait "$n"',
        'n=$(cat /app/n); echo "${*:n}"',
        'n=$(cat /app/n); echo "${@:n}"',
        'n=$(cat /app/n); echo "${@:1:n}"',
        'n=$(cat /app/n); echo "${a[@]:n}"',
        'f() { for n; do echo $((n)); done; }; f "$(cat /app/n)"',
        "timeout 5 2> /dev/null ./x",
        "exec > /dev/null ./x",
        "cat <<E ./x | bash\nE",
        "x=$(cat /app/answer); [ $x = 42 ]",
        "[ $(cat /app/answer) = 42 ]",
        "f() { test $1 = 42; }; f $(cat /app/answer)",
        "[[ 42 == $(cat /app/answer) ]]",
        "x=$(cat /app/answer); [[ a = b || 42 != $x ]]",
        "x=$(cat /app/answer); [[ 42 =~ ^$x$ ]]",
        "case 42 in a | $(cat /app/answer)) true ;; esac",
        "[ $(cat /app/x || echo | wc -l) = 1 ]",
    ],
)
def test_names_computed_from_data_use_the_image(line: str):
    assert isolation(line) is Isolation.IMAGE


@pytest.mark.parametrize(
    ("name", "content", "taken"),
    [
        ("pytest.ini", "", True),
        (".pytest.ini", "[pytest]\n", True),
        (".pytest.ini", "", False),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", True),
        ("pyproject.toml", "[tool.ruff]\nline-length = 100\n", False),
        ("pyproject.toml", "[tool.pytest.ini_options\n", False),
        ("pyproject.toml", "tool = 1\n", False),
        ("tox.ini", "[pytest]\naddopts = -q\n", True),
        ("tox.ini", "[tox]\n", False),
        ("setup.cfg", "[tool:pytest]\n", True),
        ("setup.cfg", "[pytest]\n", False),
        ("setup.cfg", "[flake8]\nmax-line-length = 100\n", False),
        ("setup.cfg", "[tool:pytest]\nno value\n", False),
        ("unit/pytest.ini", "", False),
        ("pytest.toml", "[pytest]\n", False),
    ],
)
def test_files_that_pytest_reads_as_settings_are_recognised(name: str, content: str, taken: bool):
    """pytest looks for other settings above the tests, where the agent can put some."""
    assert has_pytest_settings({name: content.encode()}, newest=False) is taken
    assert not has_pytest_settings({name: b"\xff\xfe"}, newest=False) or name == "pytest.ini"


def test_tables_that_only_a_newer_pytest_reads_are_settings_for_that_one():
    files = {"pyproject.toml": b"[tool.pytest]\naddopts = ['-q']\n"}
    assert has_pytest_settings(files, newest=True)
    assert not has_pytest_settings(files, newest=False)
