"""The wheel carries PID 1 as a program too, for the architecture that it was built on: its users need no C compiler.

Of the monitor's page it carries what others wrote, where ``make setup`` has brought it.

Runs where nothing but setuptools is installed, so the one module that it needs is loaded by its path.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PAGE_PACKAGES = "launch/pages/packages/node_modules"


class BuildWithInit(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        if not (ROOT / PAGE_PACKAGES / "uplot").is_dir():
            logging.getLogger(__name__).warning("without %s the page has no curves", PAGE_PACKAGES)
        sys.path.insert(0, str(ROOT))
        spec = importlib.util.spec_from_file_location("init_build", ROOT / "sandbox" / "init" / "build.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        try:
            module.build_init(Path(self.build_lib) / "sandbox" / "init")
        except module.UserError as error:
            logging.getLogger(__name__).warning("PID 1 is left out, and built where it is needed: %s", error)


setup(cmdclass={"build_py": BuildWithInit})
