"""A script whose tests are the agent's when they run is called the kit's own if these fail: `validate` says nothing."""

from __future__ import annotations

import pytest

from sandbox.grading.settings import has_settings
from sandbox.grading.whose import Isolation, isolation_of

TESTS = {"test_outputs.py": b"def test_a(): pass\n", "unit/test_b.py": b"", "run.sh": b"true\n"}
PYTEST = "uvx -w pytest==8.4.1 pytest"


def isolation(line: str) -> Isolation:
    return isolation_of(f"#!/bin/bash\n{line}\n", TESTS)


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
    ],
)
def test_pytest_is_told_nothing_but_what_is_known_to_run_the_tests_alone(call: str):
    assert isolation(f"{PYTEST} {call}") is Isolation.IMAGE
    assert isolation(f"uv venv v; . v/bin/activate\npytest {call}") is Isolation.IMAGE


@pytest.mark.parametrize(
    "call",
    [
        "--ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA",
        '"$TEST_DIR/test_outputs.py" -vvs --tb=short --maxfail 1 -p no:cacheprovider -pno:randomly',
        "${TEST_DIR:-/tests}/unit -xq -rfE --junitxml=/logs/junit.xml --color no",
        "-v --no-header --disable-warnings --durations=0 -k 'a and not b' -m \"not slow\" /tests",
        "-W ignore::DeprecationWarning /tests/test_outputs.py::test_a /tests/unit/test_b.py",
        "/tests/test_outputs.py::test_x[a-1] -rA 2>&1 | tee /logs/out.txt",
    ],
)
def test_usual_calls_of_pytest_are_ours(call: str):
    assert isolation(f"{PYTEST} {call}") is Isolation.KIT
    assert isolation(f"uv venv v; . v/bin/activate\npytest {call}") is Isolation.KIT


@pytest.mark.parametrize(
    "line",
    [
        "cat /app/run.sh > /tests/run.sh",
        "cat /app/run.sh >> $TEST_DIR/run.sh",
        "cat /app/run.sh &> ${TEST_DIR}/run.sh",
        'cat /app/run.sh >| "/te"sts/run.sh',
        "cat /app/run.sh > /app/../tests/run.sh",
        "cat /app/run.sh > /proc/self/root/tests/run.sh",
        "cat <<E > /tests/conftest.py\n$(cat /app/x)\nE",
        "exec 3> /tests/conftest.py; cat /app/x >&3",
        "{ cat /app/x; } > /tests/conftest.py",
        "for f in conftest.py; do cat /app/$f > /tests/$f; done",
        "out=/tests; cat /app/x > $out/conftest.py",
        "out=(/tests); cat /app/x > ${out[0]}/conftest.py",
        "out=$(cat /app/where); cat /app/x > $out",
        'f() { cat /app/x > "$1"; }; f /tests/conftest.py',
        "read -r out < /app/where; cat /app/x > $out",
        "cd /tests; cat /app/x > conftest.py",
        'cd "$(dirname "$0")" && cat /app/x > conftest.py',
        "cd /; cat /app/x > tests/conftest.py",
        "cd ..; cat /app/x > conftest.py",
        "cd /tests\ncp /app/conftest.py .",
        "pushd $TEST_DIR; ln -s /app/conftest.py",
        "cp /app/conftest.py /tests",
        "cp > /dev/null /app/conftest.py /tests",
        "cp -t /tests /app/conftest.py",
        "'cp' \"-t\" /tests /app/conftest.py",
        "'cd' /tests; cp /app/conftest.py .",
        "cp -rt/tests /app/conftest.py",
        "cp --target-directory=/tests /app/conftest.py",
        "cp -r /app/out/. /",
        'cp "$(cat /app/x)" /app/y',
        "mv /tests/expected /app",
        "ln -sf /app/conftest.py /tests/conftest.py",
        "rm -rf /tests/unit",
        "find /tests -name conftest.py -delete",
        "tar -xf /app/out.tar -C /tests",
        "tar xzf /app/out.tar -C/tests",
        "tar xfC /app/out.tar /tests",
        "tar --extract --file=/app/out.tar --directory=/tests",
        "tar -xf /app/out.tar -C /",
        "cd /tests; tar -xf /app/out.tar",
        "unzip /app/o.zip -d /tests",
        "unzip -qd/tests /app/o.zip",
        "cd /tests; unzip -o /app/o.zip",
        "tee /tests/conftest.py < /app/conftest.py",
        "cat /app/x | tee -a /logs/x /tests/conftest.py",
        "timeout 5 tee /tests/conftest.py < /app/conftest.py",
        'run() { "$@"; }; run tee /tests/conftest.py < /app/conftest.py',
        "dd if=/app/x of=/tests/conftest.py",
        "truncate -s 0 /tests/expected",
        "sort -o /tests/expected /app/x",
        "uniq /app/x /tests/expected",
        "xxd -r /app/x /tests/conftest.py",
        "sed -i s/a/b/ /tests/test_outputs.py",
        "sed -n 'w /tests/conftest.py' /app/conftest.py",
        "sed -n -e 's/a/a/w/tests/conftest.py' /app/conftest.py",
        'sed "$(cat /app/program)" /app/x',
        "sed -f /app/program /app/x",
        "awk '{ print > \"/tests/conftest.py\" }' /app/x",
        "awk '{ print $1 > $2 }' /app/x",
        "uudecode /app/x",
        "wget -O /tests/conftest.py http://127.0.0.1/x",
        "cd /tests; wget http://127.0.0.1/conftest.py",
        "TEST_DIR=/app",
        "for TEST_DIR in /app; do :; done",
        "for PATH in /app; do ls; done",
        "((PATH = 10)); ls",
    ],
)
def test_what_may_be_written_among_the_tests_is_no_test_of_ours(line: str):
    assert isolation(f"{line}\n{PYTEST} $TEST_DIR/test_outputs.py") is Isolation.IMAGE


@pytest.mark.parametrize(
    "line",
    [
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo >&2 done; ls &> /dev/null 2>&1 >&-",
        'log=/logs/verifier; echo 1 >> "$log/reward.txt"; exec > "${OUT:-/logs/out}" 2>&1',
        'made=$(mktemp -d); cp -r /tests/unit "$made"; cp /tests/run.sh /app/; rm -rf "$made"',
        "cat /tests/expected > want.txt; sort want.txt -o want.txt; cd /app/src && tee out < /tests/expected",
        "for n in 1 2; do head -1 /app/$n > /tmp/$n.$$; done",
        "tar -xzf /tests/data.tgz -C /app; tar tf /app/x; tar -xOf /app/x; unzip -q /tests/data.zip -d /tmp/data",
        "sed -n '/www/p' /tests/expected; sed -i 's/a/b/' /app/x; uniq /tests/expected | sort -u | xxd",
        'awk \'$1 > 5 { print $2; print "x" > "/dev/stderr" }\' /tests/expected',
        "cd /tests; ls; cp run.sh /app/run.sh; touch x",
        "x=3; n=$(ls /app | wc -l); [ $x -eq 3 ] && test $n -gt 2; [ $(grep -c 'a' /app/x || true) -eq ${#names[@]} ]",
        'TEST_DIR="${TEST_DIR:-/tests}"; chmod +x $TEST_DIR/run.sh',
        "wget -qO- http://127.0.0.1/x; wget -q -O /tmp/page http://127.0.0.1/x",
    ],
)
def test_what_is_written_elsewhere_is_no_doubt(line: str):
    assert isolation(f"{line}\n{PYTEST} $TEST_DIR/test_outputs.py") is Isolation.KIT


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
        'f() { for n; do echo $((n)); done; }; f "$(cat /app/n)"',
        "timeout 5 2> /dev/null ./x",
        "exec > /dev/null ./x",
        "cat <<E ./x | bash\nE",
        "x=$(cat /app/answer); [ $x = 42 ]",
        "[ $(cat /app/answer) = 42 ]",
        "f() { test $1 = 42; }; f $(cat /app/answer)",
        "[ $(cat /app/x || echo | wc -l) = 1 ]",
    ],
)
def test_words_behind_a_redirection_and_names_from_data_are_read_too(line: str):
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
def test_settings_are_what_pytest_takes_for_some(name: str, content: str, taken: bool):
    """It looks for others above the tests, where the agent can put some."""
    assert has_settings({name: content.encode()}, newest=False) is taken
    assert not has_settings({name: b"\xff\xfe"}, newest=False) or name == "pytest.ini"


def test_tables_that_only_a_newer_pytest_reads_are_settings_for_that_one():
    files = {"pyproject.toml": b"[tool.pytest]\naddopts = ['-q']\n"}
    assert has_settings(files, newest=True)
    assert not has_settings(files, newest=False)
