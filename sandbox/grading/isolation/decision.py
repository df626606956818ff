"""Decides whose programs run a task's tests: the toolchain's or the image's. Pure.

The decision is read from the test script.  The toolchain's programs run it if each command is a builtin, a function of
the script, a read-only tool of the toolchain (``read_only_tools``), or one that a shim answers
(:mod:`sandbox.toolchain.in_container.shim_rules`); if pytest is only called to run the tests (``pytest_call``); if
nothing that the agent left can become a program (``arithmetic``); if files are written only where the agent cannot have
made a link (``write_targets``); and if a program of the agent runs as nobody and learns nothing by accident
(``unprivileged_programs``). In doubt the image's programs run it. Programs that the tests themselves start are their
own responsibility: ``subprocess.run(["git", …])`` in a test runs the image's git.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain

from sandbox.grading.isolation.arithmetic import find_counted_names, find_untrusted_values
from sandbox.grading.isolation.builtin_rules import SETTERS
from sandbox.grading.isolation.command_reader import CommandReader, calls_plain_program, sets_setting
from sandbox.grading.isolation.directed_commands import find_directed_commands
from sandbox.grading.isolation.image_python import find_image_need
from sandbox.grading.isolation.python_tests import Exposure, ExposureKind, find_python_exposures
from sandbox.grading.isolation.script_shell import choose_shell
from sandbox.grading.isolation.unprivileged_programs import IsolationRisk, find_exposures, find_named_users
from sandbox.grading.shell_scripts.parser import parse_script
from sandbox.grading.shell_scripts.script import MOST_CHARACTERS, ShellScript, UnreadableScriptError


class Isolation(StrEnum):
    """Owner of the shell, tools and Python that run the tests; the output stream is theirs alone."""

    TOOLCHAIN = "toolchain"
    """The toolchain's programs: static or sealed, and read-only."""
    SHARED = "shared"
    """The toolchain's programs, but the tests import modules that may be the agent's, start programs as their own user,
    who can read them, or open files that the agent names: canaries (:mod:`sandbox.grading.canaries`) show some of what
    the first two can do."""
    IMAGE = "image"
    """Programs of the image take part, which a root agent can have replaced unless the container is a clean one."""
    LIVE = "live"
    """Processes of the agent ran beside the tests: they may have answered them, ended what the tests started, and
    changed files and programs meanwhile. True of every run at grading level ``live``, whatever its script."""


def decide_isolation(
    script: str, tests: Mapping[str, bytes], *, verifier: bool = True, plain: bool = True
) -> Isolation:
    """Return the isolation for a test script and the tests; the flags as for :func:`find_isolation_risk`."""
    risk = find_isolation_risk(script, tests, verifier=verifier, plain=plain)
    return Isolation.TOOLCHAIN if risk is None else Isolation.IMAGE


def find_reported_isolation(used: Isolation, script: str, tests: Mapping[str, bytes]) -> Isolation:
    """Return the isolation that a grade may claim, of tests that ran at isolation ``used``."""
    exposed = used is Isolation.TOOLCHAIN and any(find_exposed_places(script, tests))
    return Isolation.SHARED if exposed else used


def runs_agent_code(tests: Mapping[str, bytes]) -> bool:
    """Return whether code of the agent may run in the tests' process or as their user."""
    return any(each.kind is not ExposureKind.DIRECTED for each in find_python_exposures(tests))


def find_exposed_places(script: str, tests: Mapping[str, bytes]) -> Iterator[Exposure]:
    """Yield where tests give code or text of the agent power over them, whose programs ever run them."""
    yield from find_python_exposures(tests)
    yield from find_directed_commands(script, shell_scripts(tests))


def calls_plain_programs(script: str, tests: Mapping[str, bytes]) -> bool:
    """Return whether scripts that run on the toolchain may call its plain shims."""
    return _any_plain_call(parse_script(text) for text in (script, *shell_scripts(tests).values()))


def starts_plain_pytest(script: str, tests: Mapping[str, bytes]) -> bool:
    """Return whether scripts that run on the toolchain start pytest as the image's."""
    main, *others = parsed = [parse_script(text) for text in (script, *shell_scripts(tests).values())]
    reader = CommandReader(main, dict(zip(shell_scripts(tests), others, strict=True)), tests, verifier=True, plain=True)
    deque(chain.from_iterable(map(reader.risks, parsed)), maxlen=0)
    return reader.starts_plain_pytest


def _any_plain_call(scripts: Iterable[ShellScript]) -> bool:
    return any(map(calls_plain_program, chain.from_iterable(script.commands for script in scripts)))


def shell_scripts(tests: Mapping[str, bytes]) -> dict[str, str]:
    """Return the shell scripts among the tests, by path."""
    return _texts(tests, ".sh")


def _texts(tests: Mapping[str, bytes], *ends: str) -> dict[str, str]:
    return {path: data.decode(errors="replace") for path, data in tests.items() if path.endswith(ends)}


def find_isolation_risk(
    script: str, tests: Mapping[str, bytes], *, verifier: bool = True, plain: bool = True
) -> IsolationRisk | None:
    """Return the first part of the scripts that is not certainly the toolchain's; None if all is.

    ``verifier``: the toolchain has its verifier half; ``plain``: its pytest may run tests that a script runs by the
    image's, if they need nothing of the image's Python.
    """
    scripts_beside = shell_scripts(tests)
    if by_name := next(find_named_users((script, *_texts(tests, ".sh", ".py").values())), None):
        return by_name
    if not choose_shell(script, verifier=verifier).is_toolchain:
        return IsolationRisk(script.split("\n", 1)[0])
    if sum(map(len, (script, *scripts_beside.values()))) > MOST_CHARACTERS:
        return IsolationRisk(f"more than {MOST_CHARACTERS} characters")
    try:
        main, others = parse_script(script), {path: parse_script(text) for path, text in scripts_beside.items()}
    except (UnreadableScriptError, RecursionError) as error:
        return IsolationRisk(str(error))
    scripts = [main, *others.values()]
    plain = plain and _any_plain_call(scripts) and not find_image_need(tests)
    reader = CommandReader(main, others, tests, verifier=verifier, plain=plain)
    settings = filter(sets_setting, find_counted_names(scripts))
    untrusted = chain(find_untrusted_values(scripts, SETTERS), settings, *map(reader.risks, scripts))
    return next(chain(find_exposures(main, others), map(IsolationRisk, untrusted)), None)
