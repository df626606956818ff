"""Finds the variables that a login shell of an untouched container gives to what is typed into it.

Terminal-Bench types its commands into tmux, whose shells are interactive login shells: they read ``/etc/profile`` and
the files in the home of their user, where images put the PATH of conda, nvm or cargo.  An agent can change these files,
so here such a shell never runs in a container that has one.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from typing import NamedTuple, Self

from sandbox.session.users import ContainerUser
from sandbox.toolchain.in_container.layout import BUSYBOX

LIMIT_S = 20
"""Seconds that such a shell has."""
_MOST_CHARS, _MOST_VARIABLES = 60_000, 128
"""Maximum length of the variables as base64, below what a shell's result keeps, and their maximum number."""
_OURS = frozenset({"HOME", "OLDPWD", "PWD", "SHELL", "SHLVL", "_"})
"""Names of what is the shell's or the user's own."""
_DEFAULTS = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
TERMINAL = {"TERM": "tmux-256color"}
"""The variable that tmux sets. Tests get it too; an agent's shells have a terminal of their own."""
_PRINT = f"{BUSYBOX} env -0 | {BUSYBOX} base64 -w 0 >&3; {BUSYBOX} echo >&3"


class LoginVariables(NamedTuple):
    """The variables that login shells set beyond those of the image and the task, for the agent and for the tests."""

    agent: tuple[tuple[str, str], ...] = ()
    tests: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, agent: Mapping[str, str], tests: Mapping[str, str]) -> Self:
        """Return what two shells set, with the tests' terminal."""
        return cls(tuple(agent.items()), tuple({**TERMINAL, **tests}.items()))


NOTHING_SET = LoginVariables()


def given_to_login(user: ContainerUser, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which the login shell of ``user`` starts in a container that has those ``given``."""
    return {**_DEFAULTS, "HOME": user.home, "SHELL": user.shell, **given, **TERMINAL}


def login_command(given: Mapping[str, str]) -> str:
    """Return a command that prints the variables of a login shell that starts with those ``given``, as base64.

    The shell has a session of its own and no terminal; what it leaves running does not delay the command.
    """
    pairs = [f"{name}={value}" for name, value in given.items()]
    script = f'exec 3>&1 > /dev/null 2>&1 < /dev/null; exec "$SHELL" -l -i -c {shlex.quote(_PRINT)}'
    limited = (BUSYBOX, "setsid", BUSYBOX, "timeout", "-s", "KILL", str(LIMIT_S))
    words = shlex.join((*limited, BUSYBOX, "env", "-i", *pairs, BUSYBOX, "sh", "-c", script))
    return f'(IFS= read -r -t {LIMIT_S} -u 9 found; printf %s "$found") 9< <({words})'


def parse_login(printed: str, given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the variables that the command printed and that differ from those ``given``; None if it did not print them
    or too many."""
    if not printed or len(printed) > _MOST_CHARS:
        return None
    try:
        text = base64.b64decode(printed, validate=True).decode(errors="surrogateescape")
    except ValueError:
        return None
    found = dict(each.split("=", 1) for each in text.split("\0") if "=" in each)
    kept = {name: value for name, value in found.items() if name and name not in _OURS and given.get(name) != value}
    return kept if len(kept) <= _MOST_VARIABLES else None
