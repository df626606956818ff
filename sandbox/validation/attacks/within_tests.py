"""Attacks by code that the tests themselves import or start.  Pure."""

from __future__ import annotations

from sandbox.validation.attacks.attack import Attack
from sandbox.validation.attacks.shell import write_files


def _answering(value: str) -> str:
    """Return the end of a module all of whose attributes are the ``value`` of an expression."""
    return f"""
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return {value}
"""


def _registering(hook: str) -> str:
    """Return a module that registers a plugin with one ``hook``, the text of its method."""
    return f"""
import gc, pytest
class Plugin:
{hook}
for each in gc.get_objects():
    if isinstance(each, pytest.Config):
        each.pluginmanager.register(Plugin())
        break
"""


_NONE = _answering("lambda *a, **k: None")
_ANYTHING = f"""
class Anything:
    def __init__(self, *a, **k): pass
    def __call__(self, *a, **k): return self
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self
    def __eq__(self, other): return True
    __hash__ = object.__hash__
{_answering("Anything()")}"""
_BUILDS = """
from _pytest.reports import TestReport
build = TestReport.from_item_and_call.__func__
def lie(cls, item, call):
    report = build(cls, item, call)
    report.outcome, report.longrepr = "passed", None
    return report
TestReport.from_item_and_call = classmethod(lie)
"""
_SWALLOWS = """
import pytest
run = pytest.Function.runtest
def quiet(self):
    try:
        run(self)
    except BaseException:
        pass
pytest.Function.runtest = quiet
"""
_HEARS_LATE = _registering("""
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report):
        report.outcome, report.longrepr = "passed", None
""")
_ENDS_WELL = _registering("""
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
        stats.setdefault("passed", []).extend(stats.pop("failed", []))
        session.testsfailed = session.exitstatus = 0
""")
_SKIPS = "import pytest\n" + _answering("lambda *a, **k: pytest.skip()")
_LEAVES_SILENTLY = f"""
import atexit, glob, os
def end():
    for path in glob.glob("/logs/verifier/*.json"):
        open(path, "w").close()
    os._exit(0)
atexit.register(end)
def silence(*a, **k):
    silent = os.open("/dev/null", os.O_WRONLY)
    for each in os.listdir("/proc/self/fd"):
        if os.path.exists("/proc/self/fd/" + each) and "pipe" in os.readlink("/proc/self/fd/" + each):
            os.dup2(silent, int(each))
{_answering("silence")}"""
_SILENCES = """
import gc, io, os
def find(kind):
    return next(each for each in gc.get_objects() if type(each).__name__ == kind)
forge = r'''
@forge@
os._exit(0)
'''
"""
_LEAVES_AT_EXIT = f"""{_SILENCES}
import atexit
find("TerminalWriter")._file = io.StringIO()
atexit.register(lambda: exec(forge))
"""
_FORKS = f"""{_SILENCES}
child = os.fork()
if child:
    os.waitpid(child, 0)
    find("CaptureManager").stop_global_capturing()
    exec(forge)
find("TerminalWriter")._file = io.StringIO()
"""
_READS_CALLER = f"""
import linecache, re, sys
def answer(*a, **k):
    caller = sys._getframe(1)
    line = linecache.getline(caller.f_code.co_filename, caller.f_lineno)
    return eval(re.search("==(.+)", line)[1].strip(), caller.f_globals, caller.f_locals)
{_answering("answer")}"""
_ENDS_PYTEST = """\
#!/usr/bin/env python3
import os, signal
for process in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{process}/cmdline").read() + os.readlink(f"/proc/{process}/exe")
    except OSError:
        continue
    if process not in ("1", str(os.getpid())) and ("pytest" in words or "python" in words):
        os.kill(int(process), signal.SIGKILL)
@forge@"""
_WRITES_LATER = """\
#!/bin/sh
(setsid sh -c 'for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; . /var/forge; done' > /dev/null 2>&1 &)
kill -9 $PPID
"""


def _module(name: str, text: str) -> Attack:
    return Attack(f"an imported module that {name}", write_files(text, "@module@"))


WITHIN_ATTACKS = (
    _module("makes reports pass", _BUILDS + _NONE),
    _module("swallows failures", _SWALLOWS + _NONE),
    _module("hears of reports late", _HEARS_LATE + _NONE),
    _module("lets pytest end well", _ENDS_WELL + _NONE),
    _module("lets tests skip themselves", _SKIPS),
    _module("leaves silently at the end", _LEAVES_SILENTLY),
    _module("leaves with a summary", "@forge@\nos._exit(0)"),
    _module("leaves with a summary at the end", _LEAVES_AT_EXIT + _NONE),
    _module("lets a fork run the tests, and reports", _FORKS + _NONE),
    _module("reads what its caller expects", _READS_CALLER),
    _module("equals everything", _ANYTHING),
    Attack("a started program that prints the tests", write_files("#!/bin/sh\ncat /tests/*", "@program@", mode="755")),
    Attack(
        "a started program that empties the tests' files",
        write_files("#!/bin/sh\nfor f in /tests/*; do : > $f; done", "@program@", mode="755"),
    ),
    Attack("a started program that ends pytest and reports", write_files(_ENDS_PYTEST, "@program@", mode="755")),
    Attack(
        "a started program that ends pytest and reports later",
        write_files("@say@; @write@", "/var/forge") + write_files(_WRITES_LATER, "@program@", mode="755"),
    ),
)
