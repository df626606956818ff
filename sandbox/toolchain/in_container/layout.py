"""Paths of the toolchain in containers, and the environment by which a grader's programs find them.

Nothing that the agent left is found instead.  Standard library only: a copy runs in containers.
"""

from __future__ import annotations

VERIFY = "/.sbx/verify"
WHEELS = f"{VERIFY}/wheels"
PYTHONS = f"{VERIFY}/pythons"
ENVIRONMENT = f"{VERIFY}/env"
"""A read-only virtual environment on the toolchain's Python, with pytest and its plugin."""
BIN = f"{VERIFY}/bin"
"""The real uv, and bash."""
SHIMS = f"{VERIFY}/shim"
"""The shims (:mod:`sandbox.toolchain.in_container.shim`)."""
CREATED_PATHS_FILE = "/tests/.longshore-made"
"""File in which shims record what they create outside the tests' folder, each path ended by NUL."""
SHIMS_ANSWER_VARIABLE = "LONGSHORE_KIT_ANSWERS"
"""Set for tests that run on the toolchain: the shims answer what they can, even if there is a network and the real uv
could answer with the agent's projects."""
IMPORTABLE_VARIABLE = "LONGSHORE_IMPORTABLE"
"""Set for them too: folders of ``/`` from which tests may import, separated by ``:``."""
FACTS_FILE = "/.sbx/kit.json"
"""Present in every toolchain that has its verifier half."""

BASH = "/.sbx/bash"
"""A static bash."""
BUSYBOX = "/.sbx/busybox"
TOOLS = "/.sbx/bin"
"""busybox's tools, static."""
GNU = f"{VERIFY}/gnu"
"""GNU tools that test scripts read and compare with."""
TOOL_FOLDERS = (GNU, TOOLS)


def verify_environment(path: str, fresh: str, *, ours_first: bool = False, offline: bool = True) -> dict[str, str]:
    """Return the environment of the verify phase.

    ``path``: the image's PATH; ``fresh``: a folder that the agent could not touch.  ``ours_first``: the toolchain's
    tools come before the image's, else after them, for an image that lacks some.  The real uv keeps no cache between
    calls, and what it creates lies in ``fresh``: elsewhere the agent could have put its own.
    """
    tools = ":".join((*TOOL_FOLDERS, path) if ours_first else (path, *TOOL_FOLDERS))
    env = {
        "PATH": f"{SHIMS}:{BIN}:{tools}",
        "UV_FIND_LINKS": WHEELS,
        "UV_PYTHON_INSTALL_DIR": PYTHONS,
        "UV_PYTHON_PREFERENCE": "only-managed",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LIBC": "gnu",  # the kit's Python brings its own; else uv starts the image's loader to find out
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
