"""The tasks of the comparison with Harbor whose script runs pytest and says in its own way how that ended."""

from __future__ import annotations

from tools.harness_comparison.cases import REWARD, ComparisonCase

_TESTS = "from pathlib import Path\n\ndef test_answer():\n    assert Path('/app/answer').read_text() == '42'\n"
_SOLVE = "printf 42 > /app/answer"
_BY_EXIT = f"if [ $? -eq 0 ]; then echo 1 > {REWARD}; else echo 0 > {REWARD}; fi\n"
_EXPECTED_FAILURE = (
    "import unittest\n\nclass TestAnswer(unittest.TestCase):\n    def test_answer(self): pass\n\n"
    "    @unittest.expectedFailure\n    def test_later(self): self.fail()\n"
)
_SKIPPED = f"{_TESTS}\nimport pytest\n\n@pytest.mark.skip\ndef test_later(): ...\n"
_FLAKY = (
    "import os\n\ndef test_answer():\n    tried = os.path.exists('/tmp/tried')\n    open('/tmp/tried', 'w').close()\n"
    "    assert tried\n"
)


def _case(name: str, test: str, tests: str = _TESTS, solve: str = _SOLVE, differs: str = "") -> ComparisonCase:
    files = {"tests/test_outputs.py": tests}
    return ComparisonCase(name, f"#!/bin/bash\n{test}", solve, files=files, differs=differs)


PYTEST_CASES = (
    _case("pytest-passes-named", f"pytest /tests/test_outputs.py -rA\n{_BY_EXIT}"),
    _case("pytest-verbose", f"pytest /tests/test_outputs.py -v --tb=short\n{_BY_EXIT}"),
    _case("pytest-verbose-fails", f"pytest /tests/test_outputs.py -v\n{_BY_EXIT}", solve="printf 41 > /app/answer"),
    _case("pytest-quiet", f"cd /app && python3 -m pytest -q /tests/test_outputs.py\n{_BY_EXIT}"),
    _case("pytest-quiet-fails", f"pytest -q /tests/test_outputs.py\n{_BY_EXIT}", solve="true"),
    _case("pytest-into-a-file", f"pytest -rA /tests/test_outputs.py > /logs/verifier/pytest.log 2>&1\n{_BY_EXIT}"),
    _case(
        "pytest-searched",
        f"pytest -v /tests/test_outputs.py 2>&1 | tee /tmp/log\ngrep -q 'test_answer PASSED' /tmp/log\n{_BY_EXIT}",
    ),
    _case(
        "pytest-must-fail",
        f"pytest /tests/test_outputs.py > /dev/null\n[ $? -eq 1 ]\n{_BY_EXIT}",
        solve="printf 41 > /app/answer",
    ),
    _case("pytest-expected-failure", f"pytest -rA /tests/test_outputs.py\n{_BY_EXIT}", _EXPECTED_FAILURE),
    _case(
        "pytest-skips",
        f"pytest -rA /tests/test_outputs.py\n{_BY_EXIT}",
        _SKIPPED,
        differs="a test that is named as skipped has not passed here",
    ),
    _case(
        "pytest-again",
        f"pytest -rA /tests/test_outputs.py || pytest -rA /tests/test_outputs.py\n{_BY_EXIT}",
        _FLAKY,
        differs="of several outcomes of a test the worst counts here",
    ),
)
