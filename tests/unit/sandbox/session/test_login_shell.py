"""If these fail, a login shell's output is mistaken for variables, or variables of ours are overridden."""

from __future__ import annotations

import base64

import pytest

from sandbox.session.init_connection.init_requests import ROOT
from sandbox.session.login_shell import LoginVariables, given_to_login, login_command, parse_login
from sandbox.session.users import ContainerUser

GIVEN = {"PATH": "/bin", "HOME": "/root", "A": "1"}


def printed(*variables: str) -> str:
    return base64.b64encode(b"".join(f"{each}\0".encode() for each in variables)).decode()


def test_what_differs_is_set():
    text = printed("PATH=/opt:/bin", "HOME=/root", "A=1", "B=x=y\nz", "C=")
    assert parse_login(text, GIVEN) == {"PATH": "/opt:/bin", "B": "x=y\nz", "C": ""}


def test_what_is_the_user_s_or_the_shell_s_own_is_not_set():
    text = printed("HOME=/x", "PWD=/", "SHLVL=1", "_=/bin/env", "SHELL=/x")
    assert parse_login(text, GIVEN) == {}


@pytest.mark.parametrize(
    "text", ["", "no base64!", printed(f"A={'x' * 60_000}"), printed(*(f"A{n}=" for n in range(200)))]
)
def test_no_or_too_many_variables_are_none(text: str):
    assert parse_login(text, GIVEN) is None


def test_a_shell_starts_with_the_variables_of_its_container_in_tmux():
    user = ContainerUser(ROOT, "/home/bob", "/bin/zsh")
    given = given_to_login(user, {"HOME": "/srv", "TERM": "dumb"})
    assert (given["HOME"], given["SHELL"], given["TERM"]) == ("/srv", "/bin/zsh", "tmux-256color")
    assert "'A=it'\"'\"'s'" in login_command({"A": "it's"})


def test_tests_have_a_terminal_s_name_unless_a_profile_sets_another():
    assert LoginVariables.of({}, {}).tests == (("TERM", "tmux-256color"),)
    assert LoginVariables.of({}, {"TERM": "xterm"}).tests == (("TERM", "xterm"),)
