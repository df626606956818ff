"""A Python with a package of PyPI, copied as the toolchain's is.  Blocking."""

from __future__ import annotations

import shutil
from pathlib import Path

from actors.harnesses.published_harness import PACKAGES_UNTIL, PypiPackage
from sandbox.docker.daemon import ReportLine, run_program
from sandbox.toolchain.build import find_source_python
from sandbox.toolchain.downloads import fetch_uv
from sandbox.toolchain.portable_python import copy_standard_library


def install_pypi_package(package: PypiPackage, folder: Path, cache: Path, say: ReportLine) -> None:
    """Install a package with its dependencies into a new Python in ``folder``, which is ``bin/python``.

    Raises UserError."""
    source = find_source_python(cache, None, say)
    (folder / "bin").mkdir(exist_ok=True)
    shutil.copy(source.executable, folder / "bin" / "python")
    library = folder / "lib" / f"python{source.short}"
    copy_standard_library(source, library)
    uv = str(fetch_uv(cache) / "uv")
    requirements = (f"{package.name}=={package.version}", *package.extra_requirements)
    into = ("--python", str(source.executable), "--target", str(library / "site-packages"))
    how = ("--quiet", "--compile-bytecode", "--exclude-newer", PACKAGES_UNTIL)
    run_program((uv, "pip", "install", *how, *into, *requirements), f"install {package.name}")
