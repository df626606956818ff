"""The shell command with which a harness starts in a sandbox.  Pure."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from string import Template

from actors.harnesses.catalog import PUBLISHED_HARNESSES
from actors.harnesses.published_harness import PublishedHarness
from sandbox.docker.container_spec import AGENT_PROGRAMS
from sandbox.toolchain.in_container.layout import BUSYBOX

_EXPORTED_BYTES = 120_000
"""Most bytes of a variable of the environment: Linux starts no program with one of 128 KiB."""


def start_command(harness: str, environment: Mapping[str, str]) -> str:
    """Return the command that runs ``harness``, a published one's name or a command of its own, in a subshell with
    ``environment``.  A longer value than a program's environment can hold is a variable of the shell alone."""
    if (published := PUBLISHED_HARNESSES.get(harness)) is None:
        return _run_with(environment, harness)
    home = f"/tmp/harness-{secrets.token_hex(8)}"  # noqa: S108  a new folder of the agent's user, in a sandbox of its own
    known = {**environment, "HARNESS_HOME": home, "HARNESS_BIN": f"{AGENT_PROGRAMS}/bin"}
    own = {name: Template(value).substitute(known) for name, value in published.environment.items()}
    run = _run_with({**known, **own}, f'printf %s "$LONGSHORE_INSTRUCTION" | {published.command}')
    return (
        f"{' && '.join(_write_files(published, home, known))} && {run}; set -- $?; {BUSYBOX} rm -rf {home}; (exit $1)"
    )


def _run_with(environment: Mapping[str, str], command: str) -> str:
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    exported = " ".join(
        name for name, value in environment.items() if len(value.encode(errors="replace")) <= _EXPORTED_BYTES
    )
    return f"({given}; export {exported}; eval {shlex.quote(command)})"


def _write_files(harness: PublishedHarness, home: str, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the commands that create the harness's folder, which must not exist yet, and its settings files."""
    yield f"{BUSYBOX} mkdir -m 700 {home}"
    for name, text in harness.files.items():
        path = PurePosixPath(home, name)
        yield f"{BUSYBOX} mkdir -p {path.parent}"
        yield f"printf %s {shlex.quote(Template(text).substitute(known))} > {path}"
