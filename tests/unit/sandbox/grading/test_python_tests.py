"""If these fail, nobody learns that tests run code of the agent in their own process, or as their own user."""

from __future__ import annotations

import pytest

from sandbox.grading.isolation.decision import Isolation, find_reported_isolation
from sandbox.grading.isolation.python_tests import ExposureKind, find_python_exposures

IMPORTED, STARTED = ExposureKind.IMPORTED, ExposureKind.STARTED


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from solution import square", [(IMPORTED, "import solution")]),
        ("def test_a():\n    import app.models as m", [(IMPORTED, "import app.models")]),
        ("import importlib\nimportlib.import_module('x')", [(IMPORTED, "importlib.import_module('x')")]),
        ("from importlib import import_module as load\nload('x')", [(IMPORTED, "load('x')")]),
        ("import runpy as r\nr.run_path('/app/x.py')", [(IMPORTED, "r.run_path('/app/x.py')")]),
        ("exec(open('/app/x.py').read())", [(IMPORTED, "exec(open('/app/x.py').read())")]),
        ("import os, json, pathlib\nimport pytest\nimport helpers\nfrom . import more", []),
        ("import subprocess\nsubprocess.run(['/app/x'])", [(STARTED, "subprocess.run(['/app/x'])")]),
        ("import subprocess as sp\nsp.run('x', shell=True)", [(STARTED, "sp.run('x', shell=True)")]),
        ("from subprocess import check_output\ncheck_output('x')", [(STARTED, "check_output('x')")]),
        ("import os\nos.system('x')", [(STARTED, "os.system('x')")]),
        ("import subprocess\nsubprocess.run(['x'], user=0)", [(STARTED, "subprocess.run(['x'], user=0)")]),
        ("import subprocess\nsubprocess.run(['x'], user=65534, timeout=9)", []),
        ("run('x')\nself.run(['x'])", []),
        ("this is no Python", []),
        ("import pickle\npickle.load(file)", [(IMPORTED, "pickle.load(file)")]),
        ("eval(open('/app/a.txt').read())", [(IMPORTED, "eval(open('/app/a.txt').read())")]),
        ("import sys\nsys.path.insert(0, '/app')\nimport csv", [(IMPORTED, "sys.path")]),
        ("import subprocess\nrun = subprocess.run\nrun('x')", [(STARTED, "subprocess.run")]),
        ("import os\nos.execv('/app/x', ['x'])", [(STARTED, "os.execv('/app/x', ['x'])")]),
        ("import wanted", [(IMPORTED, "import wanted")]),
    ],
)
def test_exposures_are_found_in_the_text(text: str, found: list[tuple[ExposureKind, str]]):
    tests = {"test_outputs.py": text.encode(), "helpers.py": b"", "data/wanted.json": b"{}"}
    assert [(each.kind, each.what) for each in find_python_exposures(tests)] == found


def test_an_exposure_names_its_file_and_line():
    (found,) = find_python_exposures({"deep/test_a.py": b"\n\nimport solution\n"})
    assert (found.file, found.line) == ("deep/test_a.py", 3)


def test_a_grade_claims_no_more_isolation_than_its_tests_have():
    exposed = {"test_outputs.py": b"import solution"}
    assert find_reported_isolation(Isolation.TOOLCHAIN, exposed) is Isolation.SHARED
    assert find_reported_isolation(Isolation.TOOLCHAIN, {}) is Isolation.TOOLCHAIN
    assert find_reported_isolation(Isolation.IMAGE, exposed) is Isolation.IMAGE
