"""If these fail, the toolchain's pytest runs tests that need the image's Python, or leaves to the image what it could
run."""

from __future__ import annotations

import pytest

from sandbox.grading.isolation.image_python import find_image_need


@pytest.mark.parametrize(
    "text",
    [
        "import json, os, re\nfrom pathlib import Path\n\ndef test_a(tmp_path, capsys): ...",
        "import subprocess\n\ndef test_a():\n    subprocess.run(['python3', '/app/x.py'])",
        "import pytest\nimport helpers\n\n@pytest.fixture\ndef table(tmp_path): ...\n\ndef test_a(table): ...",
        "import pytest\n\n@pytest.mark.parametrize('n, wanted', [(1, 2)])\ndef test_a(n, wanted): ...",
        "import pytest\n\n@pytest.mark.parametrize(['n', 'm'], [(1, 2)])\ndef test_a(n, m, more=3): ...",
        "import sys\n\nclass TestA:\n    def setup_method(self): ...\n    def test_a(self): print(sys.argv)",
    ],
)
def test_tests_of_the_standard_library_need_nothing_of_the_image(text: str):
    assert find_image_need({"test_outputs.py": text.encode(), "helpers.py": b"def near(): ...", "x.json": b"{"}) == ""


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("import numpy as np", "import numpy"),
        ("import importlib.metadata", "import importlib.metadata"),
        ("from distutils.util import strtobool", "import distutils.util"),
        ("import sys\nimport subprocess\nsubprocess.run([sys.executable, 'x'])", "sys.executable"),
        ("from sys import version_info\nprint(version_info)", "sys.version_info"),
        ("import sys as system\nprint(system.version)", "sys.version"),
        ("import sqlite3", "import sqlite3"),
        ("import unittest", "import unittest"),
        ("import platform", "import platform"),
        ("import pickle", "import pickle"),
        ("class TestA:\n    def setup(self): ...", "def setup"),
        ("from pathlib import Path\nPath('/app').glob('**')", "pattern **"),
        ("from pytest import mark\n@mark.asyncio\ndef test_a(): ...", "pytest.mark.asyncio"),
        ("import pytest\n@pytest.mark.usefixtures('mocker')\ndef test_a(): ...", "fixture mocker"),
        ("import pytest\n@pytest.mark.timeout(9)\ndef test_a(): ...", "pytest.mark.timeout"),
        ("import pytest\nnp = pytest.importorskip('numpy', '2')", "pytest.importorskip('numpy', '2')"),
        ("import pytest\npytest.importorskip('json')", "pytest.importorskip"),
        ("def test_a(mocker): ...", "fixture mocker"),
        ("import pytest\n@pytest.fixture()\ndef page(browser): ...", "fixture browser"),
        ("async def test_a(): ...", "async def test_a"),
        ("pytest_plugins = ['pytest.extra']", "pytest_plugins"),
        ("print 'a'", "test_outputs.py is not readable"),
    ],
)
def test_whatever_may_be_the_images_is_a_need(text: str, need: str):
    assert find_image_need({"test_outputs.py": text.encode()}) == need


def test_settings_of_pytest_are_a_need():
    assert find_image_need({"pytest.ini": b"[pytest]\naddopts = -n 4\n", "test_a.py": b""}) == "settings of pytest"
