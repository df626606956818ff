"""The users of a container: finds a user's numbers in its /etc/passwd and /etc/group by Docker's rules.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.session.init_connection.init_requests import ROOT, ProcessUser

_MAX_ID = (1 << 31) - 1
_NO_SHELL_NAMED = "/bin/sh"


class UnknownUserError(Exception):
    """The container has no such user or group."""


@dataclass(frozen=True, slots=True)
class ContainerUser:
    """A user of a container."""

    process: ProcessUser = ROOT
    home: str = "/root"
    shell: str = "/bin/bash"

    @property
    def is_root(self) -> bool:
        """Return whether its processes are root's."""
        return self.process.uid == 0


def names_root(user: str) -> bool:
    """Return whether ``user`` is root whatever the container's files say; an empty name stands for root."""
    return user in {"", "root", "0", "0:0", "root:root"}


def resolve_user(user: str, passwd: str, group: str) -> ContainerUser:
    """Return the user that Docker would choose for ``user``: a name or a number, with ``:group`` or without.

    ``passwd`` and ``group`` are the contents of the container's files. A number needs no entry; a group that is named
    replaces all others. Raises UnknownUserError.
    """
    if names_root(user):
        return ContainerUser()
    name, _, group_name = user.partition(":")
    number = _number(name)
    entry = next(
        (each for each in _entries(passwd, 7) if (each[0] == name if number is None else _number(each[2]) == number)),
        None,
    )
    if entry is None and number is None:
        raise UnknownUserError(f"it has no user {name!r} in /etc/passwd")
    uid, gid, home = (number or 0, 0, "/") if entry is None else (_id(entry[2]), _id(entry[3]), entry[5] or "/")
    shell = (entry[6] if entry else "") or _NO_SHELL_NAMED
    if group_name:
        return ContainerUser(ProcessUser(uid, _find_group(group_name, group)), home, shell)
    groups = [_id(each[2]) for each in _entries(group, 4) if entry is not None and entry[0] in each[3].split(",")]
    return ContainerUser(ProcessUser(uid, gid, tuple(dict.fromkeys(groups))), home, shell)


def _find_group(name: str, group: str) -> int:
    number = _number(name)
    for each in _entries(group, 4):
        if each[0] == name if number is None else _number(each[2]) == number:
            return _id(each[2])
    if number is None:
        raise UnknownUserError(f"it has no group {name!r} in /etc/group")
    return number


def _entries(text: str, fields: int) -> Iterator[list[str]]:
    """Yield the entries of a file as its fields; missing ones are empty."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            parts = line.strip().split(":")
            yield parts + [""] * (fields - len(parts))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) <= _MAX_ID else None


def _id(text: str) -> int:
    """Return a number of a file; Docker takes 0 for anything else."""
    return _number(text) or 0
