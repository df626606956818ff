"""What a grader's processes have in their environment, so that the kit is found, and nothing that the agent left."""

from __future__ import annotations

from sandbox.tasks.task import NetworkMode

VERIFY = "/.sbx/verify"
WHEELS = f"{VERIFY}/wheels"
PYTHONS = f"{VERIFY}/pythons"
BASH = "/.sbx/bash"
"""A static bash: what a ``#!/bin/bash`` script gets when the image's own is not trusted."""

PATH = f"{VERIFY}/shim:{VERIFY}/bin"
"""Goes before the image's PATH."""

TOOLS = "/.sbx/bin"
"""Goes after it: for an image that lacks the tools that a script takes for granted."""


def verify_environment(path: str, fresh: str, network: NetworkMode = NetworkMode.NONE) -> dict[str, str]:
    """For the verify phase; ``path`` is the image's PATH, ``fresh`` a folder that the agent had no hand in.

    uv keeps no cache between its calls, and its tools lie in ``fresh``: elsewhere the agent could have put its own.
    """
    env = {
        "PATH": f"{PATH}:{path}:{TOOLS}",
        "UV_FIND_LINKS": WHEELS,
        "UV_PYTHON_INSTALL_DIR": PYTHONS,
        "UV_PYTHON_PREFERENCE": "only-managed",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "copy",
        "UV_NO_CACHE": "1",
        "UV_NO_CONFIG": "1",
        "UV_TOOL_DIR": f"{fresh}/.uv-tools",
        "UV_NO_PROGRESS": "1",
        "PIP_FIND_LINKS": WHEELS,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    if network is NetworkMode.NONE:
        env |= {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "PIP_NO_INDEX": "1"}
    return env
