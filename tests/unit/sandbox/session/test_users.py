"""If these fail, an agent or its tests run as another user than Docker would choose."""

from __future__ import annotations

import pytest

from sandbox.session.init_connection.init_requests import ProcessUser
from sandbox.session.users import ContainerUser, UnknownUserError, names_root, resolve_user

PASSWD = """root:x:0:0:root:/root:/bin/bash
# bob:x:9:9::/nowhere:
bob:x:1000:1001:Bob:/home/bob:/bin/bash
bob:x:1007:1007::/second:

plain:x:1002:1002
odd:x:many:::/odd:
1005:x:70:70::/named-by-digits:
"""
GROUP = "root:x:0:\nbob:x:1001:\nsudo:x:27:bob,alice\ndocker:x:999:alice\nvideo:x:44:bob\nagain:x:44:bob\n"


@pytest.mark.parametrize(
    ("user", "process", "home"),
    [
        ("bob", (1000, 1001, (27, 44)), "/home/bob"),
        ("1000", (1000, 1001, (27, 44)), "/home/bob"),
        ("bob:docker", (1000, 999, ()), "/home/bob"),
        ("bob:7", (1000, 7, ()), "/home/bob"),
        ("1000:0", (1000, 0, ()), "/home/bob"),
        ("plain", (1002, 1002, ()), "/"),
        ("odd", (0, 0, ()), "/odd"),
        ("4242", (4242, 0, ()), "/"),
        ("4242:44", (4242, 44, ()), "/"),
        ("1005", (1005, 0, ()), "/"),
        ("0:27", (0, 27, ()), "/root"),
    ],
)
def test_a_user_is_found_as_docker_finds_it(user: str, process: tuple[int, int, tuple[int, ...]], home: str) -> None:
    found = resolve_user(user, PASSWD, GROUP)
    assert (found.process, found.home) == (ProcessUser(*process), home)


@pytest.mark.parametrize(("user", "shell"), [("bob:7", "/bin/bash"), ("plain", "/bin/sh"), ("4242", "/bin/sh")])
def test_a_user_has_the_shell_of_its_entry(user: str, shell: str) -> None:
    assert resolve_user(user, PASSWD, GROUP).shell == shell


@pytest.mark.parametrize("user", ["", "root", "0", "0:0", "root:root"])
def test_root_is_root_whatever_the_files_say(user: str) -> None:
    assert names_root(user)
    assert resolve_user(user, "root:x:5:5::/tmp:\n", "root:x:5:\n") == ContainerUser()


@pytest.mark.parametrize(("user", "what"), [("alice", "no user 'alice'"), ("bob:wheel", "no group 'wheel'")])
def test_an_unknown_name_is_an_error(user: str, what: str) -> None:
    with pytest.raises(UnknownUserError, match=what):
        resolve_user(user, PASSWD, GROUP)


def test_more_groups_than_the_frame_holds_are_an_error() -> None:
    with pytest.raises(ValueError, match="65 groups"):
        ProcessUser(1, 1, tuple(range(65)))
