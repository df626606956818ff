"""Installs longshore's own programs of the verify phase: an environment with pytest and rewardkit, and the shims.

Blocking.

Both are read-only, so that nothing is installed while tests run, and nothing that an agent left (a project, an
environment, a cache, a package of the image) takes part.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path, PurePosixPath

from sandbox.toolchain.in_container.layout import (
    CANARIES_VARIABLE,
    ENVIRONMENT,
    IMAGE_CANARIES,
    IMPORTABLE_VARIABLE,
    PYTHONS,
    VERIFY,
)
from sandbox.toolchain.in_container.shim_rules import PLAIN_PROGRAMS, SHIMMED_PROGRAMS
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
_VERIFIER_PACKAGE = "longshore_verifier"
"""Name of :mod:`sandbox.toolchain.in_container` in the environment, where tests may have a package ``sandbox``."""
_CANARIES_MODULES = ("layout.py", "session_outcome.py", "canary_proofs.py", "pytest_canaries.py")
_VERIFIER_MODULES = (*_CANARIES_MODULES, "archive_guard.py", "pytest_guard.py", "rewardkit_judges.py")
_LITELLM = "litellm_stand_in.py"
_PYTEST = f"""#!{ENVIRONMENT}/bin/python
import os, sys
from importlib.machinery import FileFinder, PathFinder, SourceFileLoader
from {_VERIFIER_PACKAGE}.archive_guard import keep_archives_inside
from {_VERIFIER_PACKAGE}.pytest_canaries import run_pytest
from {_VERIFIER_PACKAGE}.pytest_guard import erase_arguments, hide_test_ids

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
keep_archives_inside()
code = run_pytest()
sys.stdout.flush()
sys.exit(code)
"""
"""pytest looks for its settings before it knows this plugin's option: its value would be taken for the path of a test,
and pytest would search their common folder, ``/``.

Tests that are a package have the parent folder, ``/``, first on their path. It is the agent's: a module is taken from
there only if its name is one that the tests mean (that package, the working directory) and no other folder has it.
"""
_REWARDKIT = f"""#!{ENVIRONMENT}/bin/python
import sys
from {_VERIFIER_PACKAGE}.archive_guard import keep_archives_inside
from {_VERIFIER_PACKAGE}.rewardkit_judges import run_rewardkit
keep_archives_inside()
sys.exit(run_rewardkit())
"""
_CANARIES_PLUGIN = "longshore_canaries"
_CANARIES = f"""import os, sys
if sys.version_info >= (3, 8):
    try:
        from {_VERIFIER_PACKAGE}.pytest_canaries import pytest_configure
    except ImportError:
        pass
else:
    os.environ.pop("{CANARIES_VARIABLE}", None)
folder = "{IMAGE_CANARIES}"
folders = [each for each in os.environ.pop("PYTHONPATH", folder).split(":") if each != folder]
if folders:
    os.environ["PYTHONPATH"] = ":".join(folders)
sys.path[:] = [each for each in sys.path if each != folder]
"""
"""The plugin of an image's own pytest, whose tests do not see how it was found. Any version of Python can load it."""
_CANARIES_METADATA = {
    "METADATA": f"Metadata-Version: 2.1\nName: {_CANARIES_PLUGIN}\nVersion: 1\n",
    "entry_points.txt": f"[pytest11]\n{_CANARIES_PLUGIN} = {_CANARIES_PLUGIN}\n",
}


def source_texts() -> list[str]:
    """Return every source text of these programs."""
    copied = map(source_text, dict.fromkeys((*_COPIED, *_VERIFIER_MODULES, _LITELLM)))
    return [_SHIM, _PYTEST, _REWARDKIT, _VENV, SITE_CUSTOMIZE, _CANARIES, *_CANARIES_METADATA.values(), *copied]


def install_verifier_programs(source: SourcePython, name: str, verify: Path) -> list[Path]:
    """Install the programs into ``verify``, around its Python ``name``. Returns compiled modules among them."""
    home = f"{PYTHONS}/{name}"
    _environment(verify, source, home)
    install_image_canaries(verify / PurePosixPath(IMAGE_CANARIES).name)
    for package in _COPIED_PACKAGES:
        (verify / "shim-modules" / package).mkdir(parents=True)
        (verify / "shim-modules" / package / "__init__.py").touch()
    for each in _COPIED:
        (verify / "shim-modules" / _COPIED_PACKAGES[-1] / each).write_text(source_text(each))
    compile_modules(source, verify / "shim-modules", f"{VERIFY}/shim-modules")
    python, folder = f"{home}/bin/python{source.short}", f"{VERIFY}/shim-modules"
    for name_of_folder, programs in (("shim", SHIMMED_PROGRAMS), ("plain", PLAIN_PROGRAMS)):
        for program in programs:
            text = _SHIM.format(python=python, folder=folder, name=program)
            _program(verify / name_of_folder / program, text)
    return sorted((verify / "env").rglob("*.so"))


def _environment(verify: Path, source: SourcePython, home: str) -> None:
    """Create the environment that ``uv venv`` and ``uv pip install`` would create."""
    made = verify / "env"
    packages = made / "lib" / f"python{source.short}" / "site-packages"
    packages.mkdir(parents=True)
    for wheel in sorted((verify / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    _verifier_package(packages, _VERIFIER_MODULES)
    (packages / "litellm.py").write_text(source_text(_LITELLM))
    compile_modules(source, packages, f"{ENVIRONMENT}/{packages.relative_to(made)}")
    (made / "pyvenv.cfg").write_text(_VENV.format(home=home, version=source.version))
    for program in ("pytest", "py.test"):
        _program(made / "bin" / program, _PYTEST)
    _program(made / "bin" / "rewardkit", _REWARDKIT)
    for alias in ("python", "python3", f"python{source.short}"):
        (made / "bin" / alias).symlink_to(f"{home}/bin/python{source.short}")


def install_image_canaries(folder: Path) -> None:
    """Install the plugin by which an image's own pytest runs canaries."""
    metadata = folder / f"{_CANARIES_PLUGIN}-1.dist-info"
    metadata.mkdir(parents=True)
    for name, text in _CANARIES_METADATA.items():
        (metadata / name).write_text(text)
    (folder / f"{_CANARIES_PLUGIN}.py").write_text(_CANARIES)
    _verifier_package(folder, _CANARIES_MODULES)


def _verifier_package(folder: Path, modules: Iterable[str]) -> None:
    (folder / _VERIFIER_PACKAGE).mkdir()
    for name in modules:
        renamed = source_text(name).replace(_COPIED_PACKAGES[-1].replace("/", "."), _VERIFIER_PACKAGE)
        (folder / _VERIFIER_PACKAGE / name).write_text(renamed)


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def source_text(name: str) -> str:
    return files("sandbox.toolchain.in_container").joinpath(name).read_text()
