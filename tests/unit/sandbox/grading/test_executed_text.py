"""If these fail, ``validate`` says of a script's data what holds only for its commands, or misses a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.shell_scripts.executed_text import executed_text
from sandbox.tasks.task import Task
from sandbox.validation.network_needs import find_network_needs
from sandbox.validation.task_warnings import find_task_warnings

DATA = "pip install numpy; uvx -p 3.11 x; start-stop-daemon /tests/missing.py"


@pytest.mark.parametrize(
    "script",
    [
        f"# {DATA}",
        f"true # {DATA}",
        f"echo '{DATA}'",
        f'printf "%s" "{DATA}" 2>/dev/null',
        f"echo '{DATA}' >&2",
        f"grep -q '{DATA}' /app/x",
        f'if ! grep -rE -m 1 "{DATA}" /app; then exit 1; fi',
        f"cat <<'EOF'\n{DATA}\nEOF",
        f"say() {{\n  echo '{DATA}'\n}}\nsay",
    ],
)
def test_what_a_script_only_says_is_no_need_and_no_remark(script: str):
    assert "numpy" not in executed_text(script)
    task = Task("a", "b", run_tests=f"#!/bin/bash\n{script}\n", solution="true", tests={"run.sh": script.encode()})
    assert not find_network_needs(task)
    assert not [each for each in find_task_warnings(task) if "Python 3.11" in each or "missing" in each]
    assert not [each for each in find_task_warnings(task) if "another user" in each]


@pytest.mark.parametrize(
    "script",
    [
        "pip install numpy # now",
        "echo 'pip install numpy' > /tmp/x.sh; sh /tmp/x.sh",
        "echo 'pip install numpy' | sh",
        "cat > /tmp/x.sh <<'EOF'\npip install numpy\nEOF",
        "cat <<'EOF' | sh\npip install numpy\nEOF",
        "sh <<'EOF'\npip install numpy\nEOF",
        "echo $(pip install numpy)",
        'echo "a $(echo b; pip install numpy) c"',
        "grep -q x $(pip install numpy)",
        "bash -c 'pip install numpy'",
        "do='pip install numpy'; $do",
        "{ echo 'pip install numpy'; } > /tmp/x.sh",
        "pip install numpy && echo 'it is (done",
    ],
)
def test_what_a_script_may_execute_stays(script: str):
    assert "pip install numpy" in executed_text(script)


@pytest.mark.parametrize("file", ["/logs/agent/trajectory.json", "/tests/missing.py"])
def test_a_file_in_which_a_script_looks_for_something_stays(file: str):
    assert executed_text(f"grep -q 'pip install' {file}").split() == ["grep", "-q", file]


PIECES = ["echo ", "grep ", "'", '"', "$(", ")", "`", "a ", "| ", "> f", "# ", "\n", "<<E\n", "E\n", "{ ", "}; ", "é"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_keeps_its_order(script: str):
    left = iter(script.encode())
    assert all(byte in left for byte in executed_text(script).encode() if byte != ord(" "))
