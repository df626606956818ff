"""Compares the rewards of a harness with ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tools.harness_comparison.cases import ComparisonCase


class Harness(Protocol):
    """A public harness, as it is installed."""

    @property
    def name(self) -> str: ...

    def base_image(self) -> str:
        """Return the name of an image, on this machine's engine, from which cases are built."""
        ...

    def write(self, case: ComparisonCase, folder: Path, base_image: str) -> None:
        """Write a case as a task of this harness."""
        ...

    def run(self, tasks: Path, scratch: Path) -> Mapping[str, str]:
        """Return the outcome of the oracle of each task, by name: a reward, or in words why there is none."""
        ...


class ComparedRewards(NamedTuple):
    """The outcomes of one case."""

    case: ComparisonCase
    theirs: str
    ours: str

    @property
    def is_expected(self) -> bool:
        return (self.theirs == self.ours) is not bool(self.case.differs)


def compare(cases: Sequence[ComparisonCase], harness: Harness, folder: Path) -> list[ComparedRewards]:
    """Run the cases by both."""
    tasks, scratch = folder / "tasks", folder / "scratch"
    scratch.mkdir(parents=True)
    image = harness.base_image()
    for case in cases:
        harness.write(case, tasks / case.name, image)
    theirs, ours = harness.run(tasks, scratch), _run_ours(tasks)
    return [ComparedRewards(each, theirs.get(each.name, "nothing"), ours.get(each.name, "nothing")) for each in cases]


def _run_ours(tasks: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "sandbox.tasks", "validate", str(tasks), "--run", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    report = json.loads(done.stdout)
    unusable = {Path(each["place"]).name: f"unusable: {each['what']}" for each in report["problems"]}
    return unusable | {each["task"]: _outcome(each) for each in report["proofs"]}


def _outcome(proof: Mapping[str, object]) -> str:
    return str(proof["why"]) if proof["oracle"] is None else f"{proof['oracle']:g}"


def markdown_table(compared: Sequence[ComparedRewards], harness: str) -> str:
    lines = [f"| task | {harness} | longshore | why |", "|---|---|---|---|"]
    lines += [f"| {c.case.name} | {c.theirs} | {c.ours} | {c.case.differs} |" for c in compared]
    return "".join(f"{line}\n" for line in lines)
