"""If these fail, nobody learns that tests run code of the agent in their own process, or as their own user."""

from __future__ import annotations

import pytest

from sandbox.grading.isolation.decision import Isolation, find_reported_isolation, runs_agent_code
from sandbox.grading.isolation.python_tests import ExposureKind, find_python_exposures

IMPORTED, STARTED, DIRECTED = ExposureKind.IMPORTED, ExposureKind.STARTED, ExposureKind.DIRECTED


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


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\npytest.importorskip('solution')",
        "import pytest\npytest.importorskip(modname='solution')",
        "import pytest\ndef test_a(name):\n    pytest.importorskip(name)",
        "import pytest\npytest.main(['-q', '/app/test_x.py'])",
        "from pytest import *\nmain(['/app/test_x.py'])",
        "import unittest\nunittest.defaultTestLoader.discover('/app/checks')",
        "import unittest\nloader = unittest.TestLoader()\nloader.loadTestsFromName('solution.Tests')",
        "import doctest\ndoctest.testfile('/app/README.md', module_relative=False)",
        "import logging.config\nlogging.config.fileConfig('/app/logging.ini')",
        "from logging import config\nconfig.dictConfig(read('/app/logging.json'))",
        "import importlib\nimportlib.__import__('solution')",
        "import builtins\nbuiltins.exec(text)",
        "from builtins import eval as read\nread(text)",
        "from importlib.machinery import SourcelessFileLoader\nSourcelessFileLoader('x', '/app/x.pyc').load_module()",
        "import importlib\nimportlib.machinery.ExtensionFileLoader('x', '/app/x.so')",
        "import importlib.util\nimportlib.util.find_spec('solution').loader.load_module()",
        "import zipimport\nzipimport.zipimporter('/app/x.zip')",
        "import site\nsite.addsitedir('/app')",
        "def test_a(monkeypatch):\n    monkeypatch.syspath_prepend('/app')",
        "import ctypes\nctypes.PyDLL('/app/x.so')",
        "from ctypes import *\ncdll.LoadLibrary('/app/x.so')",
        "import pydoc\npydoc.locate('solution.square')",
        "import timeit\ntimeit.timeit('square(3)', setup='from solution import square')",
        "import timeit\ntimeit.timeit(lambda: 1, setup=text)",
        "import cProfile\ncProfile.run(text)",
        "import code\ncode.InteractiveInterpreter().runcode(text)",
        "from code import *\ninteract()",
        "import sqlite3\ndef test_a(connection):\n    connection.load_extension('/app/x')",
        "pytest_plugins = ['solution']",
        "pytest_plugins: str = 'solution.plugin'",
        "from unittest.mock import patch\n@patch('solution.now')\ndef test_a(now): ...",
        "from unittest import mock\nmock.patch(target=f'solution.{name}')",
        "def test_a(monkeypatch):\n    monkeypatch.setattr('solution.' + name, 1)",
    ],
)
def test_each_way_to_run_code_in_the_tests_process_is_found(text: str):
    assert {each.kind for each in find_python_exposures({"test_outputs.py": text.encode()})} == {IMPORTED}


@pytest.mark.parametrize(
    "text",
    [
        "from subprocess import *\nrun(['/app/x'], stdout=PIPE)",
        "import subprocess\nfrom os import *\nsystem('/app/x')",
        "import posix\nposix.posix_spawn('/app/x', ['x'], {})",
        "from asyncio import subprocess\nsubprocess.create_subprocess_exec('/app/x')",
        "async def test_a(loop):\n    await loop.subprocess_shell(make, '/app/x')",
        "import pty\npty.spawn('/app/x')",
        "from subprocess import run as sh\nsh(['/app/x'])",
        "import os\nos.popen('/app/x')",
        "import asyncio\nasyncio.create_subprocess_exec('/app/x')",
        "import subprocess\ngetattr(subprocess, 'run')(['/app/x'])",
        "import subprocess as sp\ndef start(how):\n    getattr(sp, how)(['/app/x'])",
        "import subprocess\nvars(subprocess)['run'](['/app/x'])",
        "import subprocess\nsubprocess.__dict__['run'](['/app/x'])",
        "import sys\nsys.modules['subprocess'].run(['/app/x'])",
        "import subprocess\nfrom operator import attrgetter\nattrgetter('run')(subprocess)(['/app/x'])",
        "import operator, subprocess\noperator.methodcaller('run', ['/app/x'])(subprocess)",
        "import subprocess\nsp = subprocess\nsp.run(['/app/x'])",
        "import asyncio\nasyncio.subprocess.subprocess.run(['/app/x'])",
        "from shutil import os\nos.system('/app/x')",
        "import multiprocessing.util as u\nu.spawnv_passfds(b'/app/x', [b'x'], [])",
        "from helpers import run\nrun(['/app/x'])",
        "from .helpers import run\nrun(['/app/x'])",
        "from helpers import *\nrun(['/app/x'])",
        "import helpers\nhelpers.run(['/app/x'])",
        "from . import helpers as h\nh.subprocess.run(['/app/x'])",
        "from helpers import sp\nsp.run(['/app/x'])",
        "from lib.more import again\nagain(['/app/x'])",
        "import lib\ngetattr(lib, 'go')(['/app/x'])",
    ],
)
def test_each_way_to_start_a_program_is_found(text: str):
    others = {
        "helpers.py": b"import subprocess\nimport subprocess as sp\nfrom subprocess import run\n",
        "lib/__init__.py": b"from .more import again as go\n",
        "lib/more.py": b"from helpers import run as again\n",
    }
    found = list(find_python_exposures({"test_outputs.py": text.encode(), **others}))
    assert [(each.file, each.kind) for each in found] == [("test_outputs.py", STARTED)]


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\nif __name__ == '__main__':\n    pytest.main([__file__, '-v'])",
        "import unittest\nclass A(unittest.TestCase): ...\nif __name__ == '__main__':\n    unittest.main()",
        "import pytest\npytest.importorskip('helpers')\npytest.importorskip('json')",
        "from subprocess import *\nrun(['/app/x'], user=65534, stdout=PIPE)",
        "from subprocess import *\ndef run(): ...\nrun()",
        "from ctypes import *\nsizeof(c_int)",
        "import timeit\ntimeit.timeit(lambda: 1, number=3)\ntimeit.default_timer()",
        "import timeit\ndef measure(what):\n    return timeit.repeat(what, number=3)",
        "code = read('/app/x')\ncode.strip()",
        "compile(open('/app/x.py').read(), 'x.py', 'exec')",
        "import doctest\ndoctest.ELLIPSIS",
        "pytest_plugins = ['helpers', 'pytest']",
        "from unittest.mock import patch\npatch('builtins.open')\npatch(f'{__name__}.x')",
        "from unittest.mock import patch\npatch.dict('os.environ', A='1')",
        "def test_a(monkeypatch, node):\n    monkeypatch.setattr('time.time', 1)\n    node.setattr('width', 2)",
        "import sys\ndef test_a(monkeypatch):\n    monkeypatch.setattr(sys, 'argv', ['a.b'])",
        "def test_a(service):\n    service.discover('/app')",
        "from helpers import run\nrun(['/app/x'], user=65534)",
        "from helpers import check\ncheck(['/app/x'])",
        "import helpers\nhelpers.subprocess.PIPE",
        "import os\ngetattr(os, 'getuid')()\ngetattr(os, name)",
        "import json\nvars(json)['loads'](text)",
        "import asyncio\nasyncio.subprocess.PIPE",
    ],
)
def test_what_only_resembles_them_is_no_exposure(text: str):
    helpers = b"import subprocess\nfrom subprocess import run\ndef check(words):\n    run(words, user=65534)\n"
    tests = {"test_outputs.py": text.encode(), "helpers.py": helpers}
    assert [*find_python_exposures(tests)] == []


def test_a_module_of_the_tests_is_not_pythons_of_the_same_name():
    assert [*find_python_exposures({"test_outputs.py": b"import code\ncode.wanted()", "code.py": b""})] == []


def test_an_exposure_names_its_file_and_line():
    (found,) = find_python_exposures({"deep/test_a.py": b"\n\nimport solution\n"})
    assert (found.file, found.line) == ("deep/test_a.py", 3)


@pytest.mark.parametrize(
    "text",
    [
        "open(Path('/app/where').read_text().strip())",
        "Path(Path('/app/where').read_text()).read_text()",
        "where = open('/app/where').read()\nwith open(where) as f: ...",
        "OUT = '/app/a.json'\ndef test_a():\n    made = json.loads(Path(OUT).read_text())\n    open(made['file'])",
        "def test_a():\n    with open('/app/list') as f:\n        for a in f: Path('/app', a).read_bytes()",
        "done = subprocess.run(['/app/x'], user=65534, capture_output=True)\nopen(done.stdout.decode())",
        "names = [line.strip() for line in open('/app/list')]\n[shutil.copy(name, '/tmp') for name in names]",
        "sqlite3.connect(':memory:').executescript(Path('/app/q.sql').read_text())",
        "def load(): return json.load(open('/app/m'))\ndef test_a():\n    made = load()\n    open(file=made['path'])",
        "@fixture\ndef made(): return json.load(open('/app/m'))\ndef test_a(made): Path(made['path']).read_text()",
        "def get(p): return Path(p).read_bytes()\ndef test_a(): get(json.load(open('/app/m.json'))['path'])",
        "def setUp(self): self.m = json.load(open('/app/m.json'))\ndef test_a(self): open(self.m['path'])",
        "@mark.parametrize('a, b', json.load(open('/app/m.json')))\ndef test_a(a, b): open(a)",
        "paths = []\nfor each in open('/app/list'): paths.append(each)\ndef test_a(): open(paths[0])",
        "ini = configparser.ConfigParser()\nini.read('/app/a.ini')\nopen(ini['a']['path'])",
        "open(ET.parse('/app/a.xml').getroot().findtext('path'))",
        "for each in zipfile.ZipFile('/app/a.zip').namelist(): open(each)",
        "open(os.readlink('/app/now'))",
        "def rows(sql): return sqlite3.connect('/app/a.db').execute(sql)\nrows(open('/app/q.sql').read())",
        "import helpers\nopen(helpers.load()['path'])",
        "def test_a(manifest): open(manifest['path'])",
        "sql = (APP / 'q.sql').read_text()\ndef test_a(db):\n    for part in sql.split(';'): db.execute(part)",
    ],
)
def test_tests_that_open_what_the_agent_names_or_run_its_sql_are_found(text: str):
    modules = "configparser, json, os, shutil, sqlite3, subprocess, xml.etree.ElementTree as ET, zipfile"
    load = "import json\ndef {}():\n    with open('/app/m.json') as f: return json.load(f)\n"
    tests = {
        "test_outputs.py": f"import {modules}\nfrom pathlib import Path\n{text}\n".encode(),
        "helpers.py": load.format("load").encode(),
        "conftest.py": load.format("manifest").encode(),
    }
    assert {each.kind for each in find_python_exposures(tests)} == {DIRECTED}
    assert find_reported_isolation(Isolation.TOOLCHAIN, "", tests) is Isolation.SHARED
    assert not runs_agent_code(tests)


@pytest.mark.parametrize(
    "text",
    [
        "with open('/app/out.txt') as f:\n    text = f.read()\nassert json.loads(text)['n'] == 1",
        "cases = json.loads((Path(__file__).parent / 'cases.json').read_text())\nfor each in cases: open(each['path'])",
        "with open('/tests/cases.json') as f:\n    cases = json.load(f)\nopen(cases['path'])",
        "text = Path('/app/q.sql').read_text()\ncount = len(text)\nopen(f'/app/{count}')",
        "ids = Path('/app/ids').read_text().split()\ndb.execute('SELECT * FROM a WHERE id = ?', ids)",
        "for path in Path('/app').glob('*.txt'): path.read_text()",
        "def test_a():\n    name = Path('/app/a').read_text()\ndef test_b(name):\n    open(name)",
        "for each in json.load(open('cases.json')): open(each['path'])",
        "path, text = Path('/app/a'), Path('/app/a').read_text()\npath.read_text()",
        "old = {p: p.read_text() for p in Path('/app').glob('*')}\nfor p, text in old.items(): p.read_text()",
        "for line in open('/app/a'): Path('/app/out/%d' % len(line)).read_text()",
        "def get(name): return (Path('/app') / f'{name}.txt').read_text()\nassert get('a') != get(name='b')",
        "for name, text in zip(['/app/a', '/app/b'], open('/app/c')): open(name)",
        "for name in sorted(os.listdir('/app/out')): open(os.path.join('/app/out', name))",
        "tables = open('/app/tables').read()\ndb.execute(f'PRAGMA table_info({tables})')",
    ],
)
def test_tests_that_only_look_at_what_the_agent_wrote_open_nothing_for_it(text: str):
    code = f"import json, os\nfrom pathlib import Path\n{text}\n"
    assert not [*find_python_exposures({"test_outputs.py": code.encode(), "cases.json": b"[]"})]


def test_code_that_is_nested_too_deeply_is_not_called_safe():
    tests = {"test_outputs.py": b"Path(open('/app/a').read())" + b".read_text()" * 250}
    assert [each.kind for each in find_python_exposures(tests)] == [IMPORTED]


def test_a_grade_claims_no_more_isolation_than_its_tests_have():
    exposed = {"test_outputs.py": b"import solution"}
    assert find_reported_isolation(Isolation.TOOLCHAIN, "pytest", exposed) is Isolation.SHARED
    assert find_reported_isolation(Isolation.TOOLCHAIN, "pytest", {}) is Isolation.TOOLCHAIN
    assert find_reported_isolation(Isolation.TOOLCHAIN, "cat $(cat /app/where)", {}) is Isolation.SHARED
    assert find_reported_isolation(Isolation.IMAGE, "pytest", exposed) is Isolation.IMAGE
    assert runs_agent_code(exposed)
