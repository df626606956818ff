"""What rewardkit loads of litellm, the client of its judges, for criteria that ask no judge too.

It is installed as ``litellm``, which with its dependencies is 80 MB and needs a network to be of use. Standard library
only: a copy runs in containers.
"""

from __future__ import annotations

from typing import NoReturn

REASONING_EFFORT = str


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"litellm.{name}: a judge needs a network, and litellm, which the toolchain does not have")
