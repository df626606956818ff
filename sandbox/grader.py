"""Hidden tests → a result for each, in a container that an agent has worked in.

Before a byte of a test enters the container, PID 1 kills and reaps everything else in it and answers only when it is
alone.  The tests then run as its child with a pinned environment; the verdict is read from that child's own stream,
which nothing that ran before can reach.  A ``#!/bin/sh`` script runs in a static shell and with static tools that are
mounted read-only (:attr:`Isolation.KIT`), so that a poisoned /bin/sh, grep, PATH, bashrc or ld.so.preload changes
nothing; any other script needs the image's own shell (:attr:`Isolation.IMAGE`), which a root agent can have replaced.

Tests that fail, hang, are killed or cannot be written because the agent filled its disk are outcomes.  Only a daemon or
a PID 1 that does not answer is infrastructure (SandboxLost).
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from enum import StrEnum

from protocol.trajectory import TestResult
from sandbox import wire
from sandbox.errors import SandboxLost
from sandbox.session import ANSWER_S, SandboxSession
from sandbox.summary import SummaryParser
from sandbox.tasks.task import Task
from sandbox.truncate import HeadTail

TESTS_DIR = "/tests"
_LOG_BYTES = 16 << 10
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NSSWITCH = b"passwd: files\ngroup: files\nhosts: files\n"
"""A static program still loads name-service libraries that the container's nsswitch.conf names."""


class Isolation(StrEnum):
    """How well the tests are protected from what the agent left.  Always: alone, hidden until now, own stream."""

    KIT = "kit"
    """Shell and tools are ours, static and read-only."""
    IMAGE = "image"
    """Shell and tools are the container's."""


@dataclass(frozen=True, slots=True)
class GradeResult:
    tests: tuple[TestResult, ...]
    pass_ratio: float
    """Passed ÷ all, 0 when there is no test."""
    all_passed: bool
    log: str
    """What the tests printed, head and tail."""
    isolation: Isolation
    timed_out: bool
    ms: float


class _Child:
    """The grade child's stream."""

    def __init__(self) -> None:
        self.parser, self.log = SummaryParser(), HeadTail(_LOG_BYTES, _LOG_BYTES)
        self.end: wire.GradeExit | None = None
        self.ended = asyncio.Event()

    def on_message(self, message: wire.GradeOutput | wire.GradeExit) -> None:
        if isinstance(message, wire.GradeExit):
            self.end = message
            self.ended.set()
        else:
            self.parser.feed(message.data)
            self.log.feed(message.data)


async def grade(session: SandboxSession, task: Task, timeout_s: float | None = None) -> GradeResult:
    """Grade what the agent left.  The session's shell does not survive this.

    Raises SandboxLost when the container or its daemon does not answer, SandboxDestroyed when it is gone.
    """
    started = time.perf_counter()
    isolation = isolation_of(task.run_tests)
    child = _Child()
    note, timed_out = await _bring_in(session, task, isolation), False
    if not note:
        session.grading(child)
        timed_out = await _run(session, task, isolation, child, timeout_s or task.test_timeout_s)
        session.grading(None)
    end = child.end
    sound = end is not None and not end.signalled and not timed_out
    if not note and not sound:
        note = (
            f"the tests ran out of their {timeout_s or task.test_timeout_s:g} s"
            if timed_out
            else "the tests were killed"
        )
    tests = (child.parser if sound else SummaryParser()).verdict(task.expected_tests)
    passed = sum(test.passed for test in tests)
    log = child.log.text() + (f"\n[{note}]\n" if note else "")
    ms = (time.perf_counter() - started) * 1000
    return GradeResult(
        tests,
        passed / len(tests) if tests else 0.0,
        bool(tests) and passed == len(tests),
        log,
        isolation,
        timed_out,
        ms,
    )


def isolation_of(script: str) -> Isolation:
    """A script that asks for nothing but /bin/sh gets ours."""
    return Isolation.KIT if script.split("\n", 1)[0].split() in ([], ["#!/bin/sh"]) else Isolation.IMAGE


async def _kill_all(session: SandboxSession) -> None:
    try:
        ack = await session.answered(session.request(wire.kill_all), ANSWER_S)
    except TimeoutError as error:
        raise SandboxLost("PID 1 did not answer before grading") from error
    if ack.error:
        raise SandboxLost(f"processes survived SIGKILL before grading: {os.strerror(ack.error)}")


async def _bring_in(session: SandboxSession, task: Task, isolation: Isolation) -> str:
    """Leave PID 1 alone and the tests in place.  Returns why not, when what the agent left prevents it."""
    await _kill_all(session)
    sent = session.put(f"{TESTS_DIR}/", b"", mode=0o700, flags=wire.WriteFlag.REPLACE)
    for name, data in {"run-tests.sh": task.run_tests.encode(), **task.tests}.items():
        sent += session.put(f"{TESTS_DIR}/{name}", data, mode=0o700)
    if isolation is Isolation.KIT:
        sent += session.put("/etc/nsswitch.conf", _NSSWITCH, flags=wire.WriteFlag.REPLACE)
    why = ""
    for request in sent:
        try:
            ack = await session.answered(request, ANSWER_S)
        except TimeoutError as error:
            raise SandboxLost("PID 1 did not take the tests") from error
        if ack.error and not why:
            why = f"the tests could not be written into the container: {os.strerror(ack.error)}"
    return why


async def _run(session: SandboxSession, task: Task, isolation: Isolation, child: _Child, timeout_s: float) -> bool:
    """Run the tests to their end.  Returns whether they ran out of their time; then they are dead."""
    script = f"{TESTS_DIR}/run-tests.sh"
    kit = isolation is Isolation.KIT
    argv = ("/.sbx/busybox", "sh", script) if kit else ("/bin/bash", "--noprofile", "--norc", script)
    env = {
        "PATH": f"/.sbx/bin:{_PATH}" if kit else _PATH,
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TEST_DIR": TESTS_DIR,
    }
    session.send(wire.grade(session.next_request(), task.workdir, argv, env))
    try:
        await session.arrived(child.ended, timeout_s)
    except TimeoutError:
        await _kill_all(session)
        return True
    return False
