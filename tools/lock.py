"""Make constraints.txt from pyproject.toml: `make lock`, or `tools/lock.py NAME…` to let these packages move.

Resolves in a throwaway environment, keeping every pin that still fits.  torch comes first and alone, by plain pip, so
that the build that the machine's index prefers stays; packages of the group `engine-alone` come last and without their
dependencies.  Run it with the oldest Python that pyproject.toml allows.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HEADER = """\
# Everything that `make setup` installs, each by exact version and none by the dependencies in its metadata:
# sglang's ask for CUDA packages that a CPU does not need, and torchvision, which has no build that fits, must stay out.
# Made by `make lock` (tools/lock.py) from pyproject.toml.
"""


def pins(text: str) -> dict[str, str]:
    """Name → version of the `name==version` lines."""
    return dict(line.split("==", 1) for line in text.splitlines() if "==" in line and not line.startswith("#"))


def main() -> None:
    moving = {re.sub(r"[-_.]+", "-", name).lower() for name in sys.argv[1:]}
    old = pins(CONSTRAINTS.read_text(encoding="utf-8")) if CONSTRAINTS.exists() else {}
    kept = {name: version for name, version in old.items() if re.sub(r"[-_.]+", "-", name).lower() not in moving}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups: dict[str, list[str]] = project["dependency-groups"]
    direct = [*project["project"]["dependencies"], *groups["dev"], *groups["engine"]]
    with tempfile.TemporaryDirectory(prefix="longshore-lock-") as folder:
        kept_file = Path(folder) / "kept.txt"
        kept_file.write_text("".join(f"{name}=={version}\n" for name, version in kept.items()), encoding="utf-8")
        venv.create(Path(folder) / "venv", with_pip=True, clear=True)
        pip = [str(Path(folder) / "venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        install = [*pip, "install", "--quiet", "--constraint", str(kept_file)]
        torch = [requirement for requirement in direct if re.match(r"torch\b", requirement)]
        for step in ([*torch, *project["build-system"]["requires"]], direct, ["--no-deps", *groups["engine-alone"]]):
            subprocess.run([*install, *step], check=True)
        frozen = subprocess.run([*pip, "freeze", "--all"], check=True, capture_output=True, text=True).stdout
    found = {name: version.partition("+")[0] for name, version in pins(frozen).items() if name != "pip"}
    lines = [f"{name}=={version}\n" for name, version in sorted(found.items(), key=lambda pin: pin[0].lower())]
    CONSTRAINTS.write_text(HEADER + "".join(lines), encoding="utf-8")
    for name in sorted(old.keys() | found.keys()):
        if old.get(name) != found.get(name):
            sys.stderr.write(f"{name}: {old.get(name, 'absent')} → {found.get(name, 'absent')}\n")


if __name__ == "__main__":
    main()
