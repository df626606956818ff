"""``python -m tools.gpu_check``: whether the learner works on this machine's GPU, is right there, and how fast it is.

Each stage is a process of its own with a time limit, so that one that fails or hangs leaves the others to run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import orjson

from protocol.events import JsonValue

_LEAST_S = 15.0
"""A stage is not begun with less time left."""


class Stage(NamedTuple):
    """One measurement; ``limit_s`` is the longest that its process may take."""

    limit_s: float = 150.0
    on_cpu: bool = False


_SPEEDS = {
    "speed_0.6B_16k": ("0.6B", 16_384),
    "speed_1.7B_16k": ("1.7B", 16_384),
    "speed_8B_slice_16k": ("8B_slice", 16_384),
    "speed_1.7B_64k": ("1.7B", 65_536),
    "speed_8B_slice_64k": ("8B_slice", 65_536),
}
STAGES = {
    "machine": Stage(),
    "reference": Stage(90.0, on_cpu=True),
    "parity": Stage(90.0),
    "attention": Stage(),
    "state": Stage(120.0),
    "speed_0.6B_16k": Stage(),
    "profile": Stage(),
    "speed_1.7B_16k": Stage(),
    "speed_8B_slice_16k": Stage(),
    "publish": Stage(),
    "speed_1.7B_64k": Stage(),
    "speed_8B_slice_64k": Stage(),
}
"""In the order in which they run: the most telling first."""


def main() -> int:
    """Run the stages and print a line for each; exit code 1 if one failed."""
    given = _parser().parse_args()
    if given.stage:
        _print(_measure(given.stage, given.output, given.small))
        return 0
    names = given.only.split(",") if given.only else list(STAGES)
    if unknown := [name for name in names if name not in STAGES]:
        sys.stderr.write(f"there is no stage {', '.join(unknown)}; there are {', '.join(STAGES)}\n")
        return 2
    given.output.mkdir(parents=True, exist_ok=True)
    results = Path(os.environ.get("OUT") or given.output) / "gpu_check.jsonl"
    began, failed = time.monotonic(), 0
    with results.open("ab") as file:
        for name in names:
            row = _run(name, given.budget - (time.monotonic() - began), given.output, given.small)
            failed += not row["ok"]
            _print(row)
            file.write(orjson.dumps(row) + b"\n")
            file.flush()
    seconds = time.monotonic() - began
    sys.stderr.write(f"{len(names) - failed} of {len(names)} stages ended well in {seconds:.0f} s: {results}\n")
    return int(failed > 0)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tools.gpu_check", description=(__doc__ or "").split("``: ")[1])
    made.add_argument("--budget", type=float, default=480.0, metavar="SECONDS", help="for all stages together")
    made.add_argument("--only", default="", metavar="STAGE,…", help=f"of {', '.join(STAGES)}")
    made.add_argument("--output", type=Path, default=Path(tempfile.gettempdir(), "gpu-check"), help="folder for models")
    made.add_argument("--small", action="store_true", help="tiny shapes, on any machine")
    made.add_argument("--stage", help=argparse.SUPPRESS)
    return made


def _print(row: dict[str, JsonValue]) -> None:
    sys.stdout.write(orjson.dumps(row).decode() + "\n")
    sys.stdout.flush()


def _run(name: str, left_s: float, folder: Path, small: bool) -> dict[str, JsonValue]:
    """Run one stage in a separate process and return its row."""
    if left_s < _LEAST_S:
        return {"stage": name, "ok": False, "seconds": 0.0, "error": "no time was left"}
    stage, began = STAGES[name], time.monotonic()
    command = [sys.executable, "-m", "tools.gpu_check", "--stage", name, "--output", str(folder), *["--small"][:small]]
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if stage.on_cpu else {})
    row: dict[str, JsonValue] = {"stage": name, "ok": False}
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, timeout=min(left_s, stage.limit_s), env=environment
        )
        found = orjson.loads(done.stdout.splitlines()[-1])
        row |= {"ok": bool(found.get("holds", True)), "found": found}
    except subprocess.TimeoutExpired as error:
        row["error"] = f"not done after {error.timeout:.0f} s"
    except subprocess.CalledProcessError as error:
        row["error"] = list[JsonValue](error.stderr.decode(errors="replace").splitlines()[-12:])
    return row | {"seconds": round(time.monotonic() - began, 1)}


def _measure(name: str, folder: Path, small: bool) -> dict[str, JsonValue]:
    """Run one stage in this process and return its findings."""
    from tools.gpu_check import numerics, speed  # they load torch and megatron
    from tools.gpu_check.workloads import Workbench

    stages: dict[str, Callable[[Workbench], dict[str, JsonValue]]] = {
        "machine": speed.machine,
        "reference": numerics.reference,
        "parity": numerics.parity,
        "attention": speed.attention_kernel,
        "state": numerics.state,
        "profile": speed.profile,
        "publish": speed.publish,
        **{each: partial(speed.steps, shape=shape, tokens=tokens) for each, (shape, tokens) in _SPEEDS.items()},
    }
    return stages[name](Workbench(folder, small))


if __name__ == "__main__":
    sys.exit(main())
