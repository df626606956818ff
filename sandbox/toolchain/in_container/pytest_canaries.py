"""Tests of longshore's own beside a task's, by which a module that falsifies pytest's outcomes is found out.

Code of the agent that tests import runs in pytest's process and can replace whatever decides and reports outcomes.
Such a replacement makes canaries pass: tests that must fail, which take the same way through pytest as the task's: two
under random names, and at the end of the session one under the name and the id of each test that was collected (some
of them, by chance, if there are many), so that a replacement which falsifies only tests that it names shows too. They
appear in no report and do not count. Hooks of the image's plugins and conftest.py, which may count tests, do not see
them.

The grader leaves a secret in a file (:mod:`sandbox.grading.canaries`). A session takes it before anything is imported
and leaves its digest, from which it cannot be computed, for the next session. Only the process that has taken it can
record its proof, another digest, once the canaries have failed as they must: one that is ended before has none. The
proof says what became of the tests, whatever reports are written after pytest or in its stead.

The toolchain's pytest runs this by :func:`run_pytest`, an image's own as a plugin that it finds on its path. A session
takes part only if canaries fail as they must in it before anything of the agent's can be loaded: an old pytest may not
run them. Functions that honest tests may patch are bound when this is imported. Standard
library and pytest only, Python 3.8 and later: a copy runs in containers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from ctypes import CDLL
from fcntl import LOCK_EX, LOCK_UN, flock
from os import environ, geteuid, register_at_fork, urandom
from pathlib import Path
from time import thread_time
from types import FunctionType
from typing import Any, Protocol, TextIO

import pytest
from _pytest import runner
from _pytest.fixtures import FuncFixtureInfo

from sandbox.toolchain.in_container.canary_proofs import LIED, next_secret, proof_of
from sandbox.toolchain.in_container.layout import CANARIES_VARIABLE
from sandbox.toolchain.in_container.session_outcome import SessionTests

_PR_SET_DUMPABLE = 4
_FAILS = (False, True, False)
"""Whether the phases of a test that fails have failed: its beginning, its call and its end."""
_MOST_NAMESAKES = 200
_NAMESAKES_CPU_S = 1.0
"""Processor time after which no further namesake begins: hooks and a slow machine can make each expensive."""


def run_pytest() -> int:
    """Run pytest with the arguments of this process, and with canaries if the grader asks for them."""
    path = environ.pop(CANARIES_VARIABLE, "")
    return pytest.main(plugins=[_Canaries(Path(path))] if path else [])


def pytest_configure(config: pytest.Config) -> None:
    """Add canaries to an image's own pytest if the grader asks for them."""
    if path := environ.pop(CANARIES_VARIABLE, ""):
        config.pluginmanager.register(_Canaries(Path(path)))


class _Hook(Protocol):
    """pluggy's HookImpl, whose function it declares to be final."""

    function: Callable[..., Any]
    plugin: object
    hookwrapper: bool


class _Canaries:
    """The plugin that runs canaries before the first test and at the end of the session.

    Programs that the tests start do not learn of these; even as root they cannot read this process's memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        """None in a session that takes no part. Open to its end: a test may give up root."""
        self._secret = ""
        self._lied = False
        """True if a canary has not failed."""
        self._tests = SessionTests()
        self._collected: frozenset[str] = frozenset()
        """Ids of the tests that were collected; none in the controller of pytest-xdist."""
        self._running: pytest.Item | None = None
        self._failures: tuple[bool, ...] = ()
        """Whether the phases of the canary that runs have failed."""
        self._silenced: list[tuple[_Hook, Callable[..., Any]]] = []
        """Hooks that canaries do not reach, each with its function."""
        self._reporters: list[tuple[_Hook, Callable[..., Any]]] = []
        """Hooks, pytest's own ones too, that the reports of canaries do not reach."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        with suppress(Exception):  # whatever a pytest of any version raises: then canaries prove nothing in it
            self._silenced = [(hook, hook.function) for hook in _find_foreign_hooks(session.config, self)]
            reporters = session.config.hook.pytest_runtest_logreport.get_hookimpls()
            self._reporters = [(hook, hook.function) for hook in reporters]
            collects_only = session.config.option.collectonly
            if not collects_only and all(failures == _FAILS for failures in self._run_strangers(session)):
                _hide_memory()
                self._file = self._path.open("r+")
                with _locked(self._file) as lines:
                    self._secret, lines[0] = lines[0], next_secret(lines[0])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._tests.add_collected(report)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None]:
        self._collected = frozenset(test.nodeid for test in getattr(session, "items", []))
        self._check(self._run_strangers(session))
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        runner.pytest_sessionfinish(session)  # ends the tests of a session that was stopped
        if self._file:
            self._check(self._run_strangers(session))
            with _without_sources(session.config):
                self._check(self._run_namesakes(session))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self._file:
            with self._file, _locked(self._file) as lines:
                lines.append(LIED if self._lied else proof_of(self._secret, self._tests.outcome(self._collected)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests.add(report, failed=_has_failed(report))

    def _check(self, canaries: Iterable[tuple[bool, ...]]) -> None:
        if self._file:
            self._lied |= any(failures and not any(failures) for failures in canaries)

    def _run_strangers(self, session: pytest.Session) -> Iterator[tuple[bool, ...]]:
        """Run a canary of each kind under a name that no test has. Yields whether the phases of each have failed."""
        for body in (_compares, _expects):
            yield self._run(_make_parent(session, ""), f"test_{urandom(6).hex()}", body)

    def _run_namesakes(self, session: pytest.Session) -> Iterator[tuple[bool, ...]]:
        """Run a canary under the name of each test, by what reports call it and by what its function is called."""
        tests = getattr(session, "items", [])  # none in the controller of pytest-xdist
        end_s = thread_time() + _NAMESAKES_CPU_S
        for test in sorted(tests, key=lambda _: urandom(8))[:_MOST_NAMESAKES]:
            if thread_time() > end_s:
                return
            with suppress(Exception):  # a test of another plugin's kind, which has no function or place
                body = _named_as(test.function)
                parent = _make_parent(session, test.parent.nodeid)
                yield self._run(parent, test.name, body)

    def _run(self, parent: _CanaryParent, name: str, body: Callable[[], None]) -> tuple[bool, ...]:
        canary = pytest.Function.from_parent(  # pyright: ignore[reportUnknownMemberType]  pytest leaves its keywords untyped
            parent, name=name, callobj=body, fixtureinfo=FuncFixtureInfo((), (), [], {})
        )
        self._running, self._failures = canary, ()
        with _silent(self._silenced):
            canary.ihook.pytest_runtest_protocol(item=canary, nextitem=None)
        self._running = None
        return self._failures

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Run a canary as any test, but report it to none but hooks that were added since the session's start."""
        if item is not self._running:
            return None
        reports = runner.runtestprotocol(item, log=False)
        with _silent(self._reporters):
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
        self._failures = tuple(map(_has_failed, reports))
        return True


def _has_failed(report: pytest.TestReport) -> bool:
    """Return whether a test has failed, by all that reporters ask a report."""
    return report.failed and report.outcome == "failed"


class _CanaryParent(pytest.Collector):
    """The parent of canaries, which pytest before version 7 asks for functions of nose."""

    obj = None

    def collect(self) -> list[pytest.Item]:
        return []


def _make_parent(session: pytest.Session, nodeid: str) -> _CanaryParent:
    return _CanaryParent.from_parent(  # pyright: ignore[reportUnknownMemberType]  pytest leaves its keywords untyped
        session, name="", nodeid=nodeid
    )


def _named_as(function: FunctionType) -> FunctionType:
    """Return a function that fails, with the name and the file of another."""
    own = function.__code__
    code = _compares.__code__.replace(co_name=own.co_name, co_filename=own.co_filename)
    return FunctionType(code, _compares.__globals__, code.co_name)


def _find_foreign_hooks(config: pytest.Config, own: object) -> Iterator[_Hook]:
    """Yield the hooks of plugins that are neither pytest's nor ``own``, with those of each conftest.py."""
    plugins = config.pluginmanager
    for plugin in plugins.get_plugins() - {own}:
        for caller in plugins.get_hookcallers(plugin) or ():
            for hook in caller.get_hookimpls():
                module = getattr(hook.function, "__module__", None) or ""
                if hook.plugin is plugin and module.partition(".")[0] != "_pytest":
                    yield hook


@contextmanager
def _silent(hooks: list[tuple[_Hook, Callable[..., Any]]]) -> Generator[None]:
    """Let hooks do nothing for the block, but those whose function has been replaced: it may falsify outcomes."""
    unchanged = [(hook, function) for hook, function in hooks if hook.function is function]
    for hook, _ in unchanged:
        wraps = hook.hookwrapper or getattr(hook, "wrapper", False)  # the latter since pluggy 1.2
        hook.function = _only_yields if wraps else _does_nothing
    try:
        yield
    finally:
        for hook, function in unchanged:
            hook.function = function


def _only_yields(*_: object) -> Generator[None, Any, Any]:
    return (yield)


def _does_nothing(*_: object) -> None: ...


@contextmanager
def _without_sources(config: pytest.Config) -> Generator[None]:
    """Let pytest describe failures of the block by their errors alone: else it parses the test's file for each."""
    options = vars(config.option)
    given = dict(options)
    options.update(tbstyle="line", fulltrace=False)
    try:
        yield
    finally:
        options.clear()
        options.update(given)


def _hide_memory() -> None:
    """Hide this process's memory and environment from other programs of root, but not that of processes it forks."""
    if geteuid() == 0:
        prctl = CDLL(None).prctl
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        register_at_fork(after_in_child=lambda: prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))


def _compares() -> None:
    assert urandom(8) == urandom(8)  # noqa: S101  it fails as tests do


def _expects() -> None:
    with pytest.raises(LookupError):
        raise OSError


@contextmanager
def _locked(file: TextIO) -> Generator[list[str]]:
    """Hold the file's lock for the block, which gets its words, and write them again."""
    flock(file, LOCK_EX)
    try:
        file.seek(0)
        yield (words := file.read().split())
        file.seek(0)
        file.write("\n".join(words) + "\n")
        file.flush()
    finally:
        flock(file, LOCK_UN)
