"""Fuzz targets one after another, guided by coverage: ``python -m tests.fuzz TARGET… --seconds 300``.  Needs atheris.

What a target raises for is written to a folder, one input for each place in the code, and the run goes on; a hang, a
crash of the interpreter or too much memory ends the target's run, with its input in the same folder.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from tests.fuzz.fuzz_target import FuzzTarget

_ROOMS = ["protocol", "sandbox", "actors", "launch"]
_INPUT_BYTES = 65_536
_PLAIN_SHARE = 0.25
"""Share of the inputs that libFuzzer changes by itself, by bytes."""


def _recording(target: FuzzTarget, folder: Path) -> Callable[[bytes], None]:
    """Return the target's function, which writes the first and each smaller input of a finding, and returns."""
    smallest: dict[str, int] = {}

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__}-{Path(frame.filename).stem}-{frame.lineno}"
            if len(data) >= smallest.get(place, _INPUT_BYTES + 1):
                return
            if place not in smallest:
                sys.stderr.write(f"FINDING {target.name} {place}\n{traceback.format_exc()}\n")
            smallest[place] = len(data)
            (folder / f"{target.name}-{place}").write_bytes(data)

    return run


def _fuzz(target: FuzzTarget, seconds: int, findings: Path, corpus: Path) -> None:
    """Fuzz one target, and end the process."""
    from tests.fuzz.mutations import mutate

    good = target.corpus()
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(good):
        (corpus / f"good-{number}").write_bytes(data)

    def change(data: bytes, most: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.random() < _PLAIN_SHARE:
            return atheris.Mutate(data, most)
        return mutate(data, target.kind, rng, good)[:most]

    arguments = [
        f"-max_total_time={seconds}",
        f"-max_len={_INPUT_BYTES}",
        f"-artifact_prefix={findings}/{target.name}-",
        *("-timeout=60", "-rss_limit_mb=4096", "-print_final_stats=1"),
    ]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], _recording(target, findings), custom_mutator=change)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="names; all by default")
    parser.add_argument("--seconds", type=int, default=300, help="of each target")
    parser.add_argument(
        "--findings", type=Path, default=Path(".longshore/fuzz/findings"), help="folder of what is found"
    )
    parser.add_argument("--corpus", type=Path, default=Path(".longshore/fuzz/corpus"), help="folder of kept inputs")
    options = parser.parse_args()
    with atheris.instrument_imports(include=_ROOMS):
        from tests.fuzz.targets import TARGETS
    if unknown := [name for name in options.targets if name not in TARGETS]:
        parser.error(f"there is no target {', '.join(unknown)}: the targets are {', '.join(TARGETS)}")
    options.findings.mkdir(parents=True, exist_ok=True)
    for name in options.targets or TARGETS:
        sys.stderr.write(f"TARGET {name}\n")
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _fuzz(TARGETS[name], options.seconds, options.findings, options.corpus / name)
        os.waitpid(child, 0)
    found = sorted(path.name for path in options.findings.iterdir())
    sys.stderr.write("".join(f"{options.findings / name}\n" for name in found) or "no findings\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
