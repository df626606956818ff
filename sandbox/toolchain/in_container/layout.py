"""Paths of the toolchain in containers, and the environment by which a grader's programs find them.

Nothing that the agent left is found instead. Standard library only: a copy runs in containers.
"""

from __future__ import annotations

VERIFY = "/.sbx/verify"
WHEELS = f"{VERIFY}/wheels"
PYTHONS = f"{VERIFY}/pythons"
ENVIRONMENT = f"{VERIFY}/env"
"""Read-only virtual environment on the toolchain's Python, with pytest and its plugin."""
BIN = f"{VERIFY}/bin"
"""Folder of the real uv, and bash."""
SHIMS = f"{VERIFY}/shim"
"""Folder of the shims (:mod:`sandbox.toolchain.in_container.shim`)."""
PLAIN_SHIMS = f"{VERIFY}/plain"
"""Folder of the shims for pytest, Python and pip, for scripts whose tests the toolchain's pytest can run."""
CREATED_PATHS_FILE = "/tests/.longshore-made"
"""File in which shims record what they create outside the tests' folder, each path terminated by NUL."""
SHIMS_ANSWER_VARIABLE = "LONGSHORE_SHIMS_ANSWER"
"""Variable of tests that run on the toolchain: the shims answer what they can, even if there is a network and the
real uv could answer with the agent's projects."""
IMPORTABLE_VARIABLE = "LONGSHORE_IMPORTABLE"
"""Variable of the same tests: folders of ``/`` from which they may import, separated by ``:``."""
CANARIES_VARIABLE = "LONGSHORE_CANARIES"
"""Variable of tests whose pytest runs canaries (:mod:`sandbox.toolchain.in_container.pytest_canaries`): their file."""
IMAGE_CANARIES = f"{VERIFY}/image-canaries"
"""Folder on the path of an image's own Python, whose pytest finds the canaries there as an installed plugin."""
FACTS_FILE = "/.sbx/toolchain.json"
"""File of every toolchain that has its verifier half."""

BASH = "/.sbx/bash"
"""Path of a static bash."""
BUSYBOX = "/.sbx/busybox"
TOOLS = "/.sbx/bin"
"""Folder of busybox's tools, static."""
GNU = f"{VERIFY}/gnu"
"""Folder of the GNU tools with which test scripts read and compare."""
TOOL_FOLDERS = (GNU, TOOLS)


def verify_environment(
    path: str, fresh: str, *, ours_first: bool = False, plain: bool = False, offline: bool = True
) -> dict[str, str]:
    """Return the environment of the verify phase.

    ``path``: the image's PATH; ``fresh``: a folder that the agent could not touch. ``ours_first``: the toolchain's
    tools come before the image's, else after them, for an image that lacks some; ``plain``: PLAIN_SHIMS come first.
    The real uv keeps no cache between calls, and what it creates is in ``fresh``: in other folders the agent could have
    put its own.
    """
    tools = ":".join((*TOOL_FOLDERS, path) if ours_first else (path, *TOOL_FOLDERS))
    env = {
        "PATH": ":".join((*([PLAIN_SHIMS] if plain else ()), SHIMS, BIN, tools)),
        "UV_FIND_LINKS": WHEELS,
        "UV_PYTHON_INSTALL_DIR": PYTHONS,
        "UV_PYTHON_PREFERENCE": "only-managed",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LIBC": "gnu",  # the toolchain's Python has its own; else uv starts the image's loader to find out
        "UV_LINK_MODE": "copy",
        "UV_NO_CACHE": "1",
        "UV_NO_CONFIG": "1",
        "UV_TOOL_DIR": f"{fresh}/.uv-tools",
        "UV_PROJECT_ENVIRONMENT": f"{fresh}/.uv-project",
        "UV_VENV_CLEAR": "1",
        "UV_NO_PROGRESS": "1",
        "PIP_FIND_LINKS": WHEELS,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    if offline:
        env |= {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "PIP_NO_INDEX": "1"}
    return env
