"""Installs longshore's own programs of the verify phase: an environment with pytest, and the shims. Blocking.

Both are read-only, so that nothing is installed while tests run, and nothing that an agent left (a project, an
environment, a cache, a package of the image) takes part.
"""

from __future__ import annotations

import zipfile
from importlib.resources import files
from pathlib import Path

from sandbox.toolchain.in_container.layout import ENVIRONMENT, IMPORTABLE_VARIABLE, PYTHONS, VERIFY
from sandbox.toolchain.in_container.shim_rules import SHIMMED_PROGRAMS
from sandbox.toolchain.portable_python import SITE_CUSTOMIZE, SourcePython, compile_modules

_COPIED = ("layout.py", "pins.py", "shim.py", "shim_rules.py")
_COPIED_PACKAGES = ("sandbox", "sandbox/toolchain", "sandbox/toolchain/in_container")
_SHIM = """#!{python} -IS
import sys
sys.path.insert(0, "{folder}")
from sandbox.toolchain.in_container.shim import main
sys.exit(main("{name}", sys.argv[1:]))
"""
_VENV = """home = {home}/bin
include-system-site-packages = false
version = {version}
"""
"""Settings of the environment; without the second line a user's own packages would be loaded."""
_PYTEST_GUARD = "longshore_pytest_guard"
"""Module name of :mod:`sandbox.toolchain.in_container.pytest_guard` in the environment."""
_PYTEST = f"""#!{ENVIRONMENT}/bin/python
import os, sys
from importlib.machinery import FileFinder, PathFinder, SourceFileLoader
from pytest import console_main
from {_PYTEST_GUARD} import erase_arguments, hide_test_ids

class Above(FileFinder):
    def find_spec(self, name, target=None):
        if name not in os.environ.get("{IMPORTABLE_VARIABLE}", "").split(":"):
            return None
        others = [each for each in sys.path if each != self.path]
        return PathFinder.find_spec(name, others) or super().find_spec(name, target)

sys.path_importer_cache["/"] = Above("/", (SourceFileLoader, [".py"]))
words = sys.argv[1:]
while "--ctrf" in words[:-1]:
    at = words.index("--ctrf")
    words[at : at + 2] = ["=".join(words[at : at + 2])]
sys.argv[1:] = words
erase_arguments()
hide_test_ids()
sys.exit(console_main())
"""
"""pytest looks for its settings before it knows this plugin's option: its value would be taken for the path of a test,
and pytest would search their common folder, ``/``.

Tests that are a package have the parent folder, ``/``, first on their path. It is the agent's: a module is taken from
there only if its name is one that the tests mean (that package, the working directory) and no other folder has it.
"""


def source_texts() -> list[str]:
    """Return every source text of these programs."""
    copied = (source_text(name) for name in (*_COPIED, "pytest_guard.py"))
    return [_SHIM, _PYTEST, _VENV, SITE_CUSTOMIZE, *copied]


def install_verifier_programs(source: SourcePython, name: str, verify: Path) -> None:
    """Install the programs into ``verify``, around its Python ``name``."""
    home = f"{PYTHONS}/{name}"
    _environment(verify, source, home)
    for package in _COPIED_PACKAGES:
        (verify / "shim-modules" / package).mkdir(parents=True)
        (verify / "shim-modules" / package / "__init__.py").touch()
    for each in _COPIED:
        (verify / "shim-modules" / _COPIED_PACKAGES[-1] / each).write_text(source_text(each))
    compile_modules(source, verify / "shim-modules", f"{VERIFY}/shim-modules")
    python, folder = f"{home}/bin/python{source.short}", f"{VERIFY}/shim-modules"
    for program in SHIMMED_PROGRAMS:
        _program(verify / "shim" / program, _SHIM.format(python=python, folder=folder, name=program))


def _environment(verify: Path, source: SourcePython, home: str) -> None:
    """Create the environment that ``uv venv`` and ``uv pip install`` would create."""
    made = verify / "env"
    packages = made / "lib" / f"python{source.short}" / "site-packages"
    packages.mkdir(parents=True)
    for wheel in sorted((verify / "wheels").glob("*-none-any.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    (packages / f"{_PYTEST_GUARD}.py").write_text(source_text("pytest_guard.py"))
    compile_modules(source, packages, f"{ENVIRONMENT}/{packages.relative_to(made)}")
    (made / "pyvenv.cfg").write_text(_VENV.format(home=home, version=source.version))
    for program in ("pytest", "py.test"):
        _program(made / "bin" / program, _PYTEST)
    for alias in ("python", "python3", f"python{source.short}"):
        (made / "bin" / alias).symlink_to(f"{home}/bin/python{source.short}")


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def source_text(name: str) -> str:
    return files("sandbox.toolchain.in_container").joinpath(name).read_text()
