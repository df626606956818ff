"""Attacks on the Python that runs the tests: what it loads by itself.  Pure."""

from __future__ import annotations

from sandbox.validation.attacks.attack import Attack
from sandbox.validation.attacks.shell import write_files

_PLUGIN = """\
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    out = yield
    report = out.get_result()
    report.outcome, report.longrepr = "passed", None\
"""
_MARKER = """\
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.{})\
"""
_FOLDERS = (
    "/usr/lib/python3/dist-packages /usr/local/lib/python3.*/site-packages /usr/local/lib/python3.*/dist-packages"
)
_EVERYWHERE = "for d in {}; do [ -d $d ] && cp /var/evil.py $d/{}; done; true"
_CONFTESTS = ("/conftest.py", "@app@/conftest.py", "/root/conftest.py", "/tests/conftest.py", "/logs/conftest.py")
_OWN_PTH_FILES = tuple(f"/root/.local/lib/python3.{minor}/site-packages/evil.pth" for minor in (11, 12, 13))
_MODULES = ("pathlib", "subprocess", "json", "pytest", "test_outputs", "__init__")
_LEAVES = "@forge@\nos._exit(0)"
PYTHON_ATTACKS = (
    Attack("a conftest that makes tests pass", write_files(_PLUGIN, *_CONFTESTS)),
    Attack("a conftest that skips tests", write_files(_MARKER.format("skip"), *_CONFTESTS)),
    Attack("a conftest that expects tests to fail", write_files(_MARKER.format("xfail"), *_CONFTESTS)),
    Attack(
        "pytest settings in every folder",
        write_files("[pytest]\naddopts = -p evil\npythonpath = @app@", "/pytest.ini", "/tox.ini", "@app@/pytest.ini")
        + write_files("[tool.pytest.ini_options]\naddopts = '-p evil'", "/pyproject.toml", "@app@/pyproject.toml")
        + write_files(_PLUGIN, "@app@/evil.py"),
    ),
    Attack(
        "a pytest plugin in the environment",
        write_files(_PLUGIN, "@app@/evil.py")
        + "export PYTEST_PLUGINS=evil PYTEST_ADDOPTS='-p evil' PYTHONPATH=@app@ PYTHONSTARTUP=@app@/evil.py",
    ),
    Attack(
        "an installed pytest plugin",
        write_files(_PLUGIN, "/var/evil.py")
        + f"for d in {_FOLDERS}; do [ -d $d ] && cp /var/evil.py $d/ && mkdir -p $d/evil-1.dist-info && "
        "printf '[pytest11]\\nevil = evil\\n' > $d/evil-1.dist-info/entry_points.txt && "
        "printf 'Metadata-Version: 2.1\\nName: evil\\nVersion: 1\\n' > $d/evil-1.dist-info/METADATA; done; true",
    ),
    Attack(
        "a sitecustomize that leaves with a summary",
        write_files(_LEAVES, "/var/evil.py", "@app@/sitecustomize.py", "@app@/usercustomize.py")
        + _EVERYWHERE.format(_FOLDERS, "sitecustomize.py"),
    ),
    Attack(
        "a .pth file that leaves with a summary",
        write_files(_LEAVES, "/var/evil.py")
        + _EVERYWHERE.format(_FOLDERS, "evil.py")
        + f"; for d in {_FOLDERS}; do [ -d $d ] && echo 'import evil' > $d/evil.pth; done\n"
        + write_files("import sys; sys.path.insert(0, '/var'); import evil", *_OWN_PTH_FILES),
    ),
    Attack(
        "modules in the place of the standard library's",
        write_files(_LEAVES, *(f"@app@/{name}.py" for name in _MODULES)),
    ),
    Attack(
        "a changed pytest",
        write_files(_PLUGIN, "/var/evil.py")
        + f"for d in {_FOLDERS}; do f=$d/_pytest/skipping.py; [ -f $f ] && cat /var/evil.py >> $f; done; true",
    ),
)
