"""Finds the judges among rewardkit's criteria, and runs rewardkit where there is none.

A judge is a model or an agent that the tests' container cannot reach. Standard library only: a copy runs in containers.
"""

from __future__ import annotations

import runpy
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

_NO_NETWORK = 100
_JUDGE_TABLES = {"judge", "criterion"}


def find_judges(tests: Mapping[str, bytes]) -> list[str]:
    """Return the paths of the TOML files among the tests by which rewardkit asks a judge."""
    return sorted(path for path, data in tests.items() if path.endswith(".toml") and _JUDGE_TABLES & _keys(data))


def _keys(data: bytes) -> set[str]:
    try:
        return {*tomllib.loads(data.decode())}
    except ValueError:
        return set()  # rewardkit refuses the file


def run_rewardkit() -> int:
    """Run rewardkit with the arguments of this process; report judges as what the network lacks, and run nothing."""
    tests = {str(path): path.read_bytes() for folder in sys.argv[1:] for path in Path(folder).rglob("*.toml")}
    if judges := find_judges(tests):
        sys.stderr.write(f"needs-network rewardkit judge of {' '.join(judges)}\n")
        return _NO_NETWORK
    runpy.run_module("rewardkit", run_name="__main__")
    return 0
