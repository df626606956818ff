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
        "def test_a():\n    if done: return\n    def near(): return 1\n    run(lambda: (yield))\n    return None",
        "import pytest\n\n@pytest.fixture\ndef test_data():\n    yield 1\n    return 2",
        "import warnings\nwarnings.filterwarnings('ignore', category=FutureWarning)\nwarnings.simplefilter('once')",
        "from pytest import mark, skip\n@mark.filterwarnings('ignore:a b:DeprecationWarning')\ndef test_a(): skip('b')",
        "import pytest, sys\n@pytest.mark.skipif(sys.platform == 'x', reason='c')\ndef test_a(): pytest.exit('d')",
        "import xml.etree.ElementTree as ET, json, re\nET.tostring(ET.fromstring('<a/>'))\nre.findall('(?i)a', 'A')",
        "from collections.abc import Mapping\nfrom collections import Counter\nfrom typing import TextIO",
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
        ("import mimetypes", "import mimetypes"),
    ],
)
def test_whatever_may_be_the_images_is_a_need(text: str, need: str):
    assert find_image_need({"test_outputs.py": text.encode()}) == need


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("import configparser\np = configparser.SafeConfigParser()", "configparser.SafeConfigParser"),
        ("import configparser\np = configparser.ConfigParser()\np.readfp(open('/app/a'))", ".readfp"),
        ("from collections import Mapping", "collections.Mapping"),
        ("from typing.io import TextIO", "typing.io"),
        ("import typing\ndef near(file: typing.io.TextIO): ...", "typing.io"),
        ("import re\nre.template('a')", "re.template"),
        ("import re\nre.search('a(?i)b', 'AB')", "pattern a(?i)b"),
        ("import json\njson.loads('1', encoding='utf-8')", "json.loads('1', encoding='utf-8')"),
        ("from pathlib import Path\nPath('/app/a').link_to('/app/b')", ".link_to"),
        ("import array\narray.array('b', b'a').tostring()", ".tostring"),
        ("import random\nrandom.shuffle(x, near)", "random.shuffle(x, near)"),
        ("import pytest\npytest.skip(msg='a')", "pytest.skip(msg='a')"),
        ("import pytest\nwith pytest.warns(None): ...", "pytest.warns"),
        ("from pytest import deprecated_call\nwith deprecated_call(): ...", "pytest.deprecated_call"),
        ("def test_a(recwarn): ...", "fixture recwarn"),
        ("def test_a():\n    return True", "test_a returns a value"),
        ("class TestA:\n    def test_a(self, tmp_path):\n        for n in (1, 2): yield n", "test_a returns a value"),
        ("import pytest\n@pytest.mark.parametrize('n', [1])\ndef test_a(n): return n", "test_a returns a value"),
        ("import pytest\n@pytest.mark.skipif('1 > 2')\ndef test_a(): ...", "pytest.mark.skipif('1 > 2')"),
    ],
)
def test_what_tests_find_in_some_versions_of_python_or_pytest_only_is_a_need(text: str, need: str):
    assert find_image_need({"test_outputs.py": text.encode()}) == need


@pytest.mark.parametrize(
    "call",
    [
        "pytest.mark.filterwarnings('error')",
        "pytest.mark.filterwarnings('error::DeprecationWarning')",
        "pytest.mark.filterwarnings('ignore::numpy.VisibleDeprecationWarning')",
        "warnings.simplefilter('error')",
        "warnings.filterwarnings(action='error')",
        "warnings.filterwarnings(chosen)",
        "warnings.catch_warnings(record=True)",
        "config.addinivalue_line('filterwarnings', 'error')",
    ],
)
def test_warnings_that_tests_look_at_are_those_of_the_images_python(call: str):
    assert find_image_need({"test_outputs.py": f"import pytest, warnings\n{call}".encode()}) == call


@pytest.mark.parametrize(
    "text",
    [
        "from datetime import UTC, datetime\ndatetime.now(UTC)",
        "def test_a():\n    match near():\n        case 1: ...",
        "try:\n    near()\nexcept* ValueError:\n    pass",
    ],
)
def test_what_only_newer_versions_have_is_no_need(text: str):
    """Where the image's Python lacks it, no answer passes by that, and an agent can replace it."""
    assert find_image_need({"test_outputs.py": text.encode()}) == ""


def test_settings_of_pytest_are_a_need():
    assert find_image_need({"pytest.ini": b"[pytest]\naddopts = -n 4\n", "test_a.py": b""}) == "settings of pytest"
