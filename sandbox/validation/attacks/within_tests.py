"""Attacks by code that the tests themselves import or start.  Pure."""

from __future__ import annotations

from sandbox.validation.attacks.attack import Attack
from sandbox.validation.attacks.shell import write_files

_ANYTHING = """
class Anything:
    def __init__(self, *a, **k): pass
    def __call__(self, *a, **k): return self
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self
    def __eq__(self, other): return True
    __hash__ = object.__hash__
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything()
"""
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
    return Attack(f"an imported module that {name}", write_files(f"{text}\n{_ANYTHING}", "@module@"))


WITHIN_ATTACKS = (
    _module("makes reports pass", _BUILDS),
    _module("swallows failures", _SWALLOWS),
    _module("leaves with a summary", "@forge@\nos._exit(0)"),
    _module("equals everything", ""),
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
