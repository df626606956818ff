"""The wheel carries PID 1 and the relay of Daytona's sandboxes as programs too, for the architecture that it was built
on: its users need no C compiler.

Of the monitor's page it carries what others wrote, where ``make setup`` has brought it.

Runs where nothing but setuptools is installed, so the modules that it needs are loaded by their paths.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType

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
        init, relay = _load_builder("init"), _load_builder("providers/daytona/relay")
        try:
            init.build_init(Path(self.build_lib) / "sandbox" / "init")
            relay.build_relay(Path(self.build_lib) / "sandbox" / "providers" / "daytona" / "relay")
        except init.UserError as error:
            logging.getLogger(__name__).warning("programs of sandboxes are left out, and built where needed: %s", error)


def _load_builder(folder: str) -> ModuleType:
    """Load the module ``build`` of a folder of the sandboxes' room."""
    path = ROOT / "sandbox" / folder / "build.py"
    spec = importlib.util.spec_from_file_location(f"build_in_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup(cmdclass={"build_py": BuildWithInit})
