"""Limits of each process of a container that a task may set, which leave the harness's own programs enough and give no
more of the host than the container's other limits do.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import ConfigDict, with_config

UNLIMITED = -1
_MEMORY = "it counts towards the memory limit"
_BOUNDS = {
    "core": (0, 0, "a sandbox writes no core dumps"),
    "memlock": (64 << 10, UNLIMITED, _MEMORY),
    "nofile": (256, 1 << 20, "the harness's programs need 256, and kernels allow 1,048,576"),
    "nproc": (4096, 1 << 22, "the kernel counts a user's processes in all sandboxes together"),
    "stack": (1 << 20, UNLIMITED, "the harness's programs need 1 MiB"),
}
"""Smallest and largest value of each limit, and why there are no others."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class ProcessLimit:
    """A limit of each process, as ``setrlimit`` has it; :data:`UNLIMITED` for none."""

    name: str
    """As in Docker: ``nofile``, ``stack`` …"""
    soft: int
    hard: int


def find_limit_problems(limits: Sequence[ProcessLimit]) -> Iterator[tuple[str, str]]:
    """Yield what no container may have, and why."""
    names = [each.name for each in limits]
    for each in limits:
        what = f"ulimits: {each.name} {each.soft}:{each.hard}"
        if each.name not in _BOUNDS:
            yield what, f"only {', '.join(_BOUNDS)} can be set"
            continue
        least, most, why = _BOUNDS[each.name]
        if names.count(each.name) > 1:
            yield what, "it is set twice"
        elif _is_above(each.soft, each.hard):
            yield what, "the soft limit is above the hard one"
        elif _is_above(least, each.soft) or _is_above(each.hard, most):
            yield what, why


def _is_above(one: int, other: int) -> bool:
    return other != UNLIMITED and (one == UNLIMITED or one > other)
