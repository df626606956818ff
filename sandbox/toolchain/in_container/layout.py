"""Where the kit's things lie, and what a grader's processes have in their environment so that they are found, and
nothing that the agent left.  Standard library only: a copy runs in containers."""

from __future__ import annotations

VERIFY = "/.sbx/verify"
WHEELS = f"{VERIFY}/wheels"
PYTHONS = f"{VERIFY}/pythons"
ENVIRONMENT = f"{VERIFY}/env"
"""A virtual environment on the kit's Python, with pytest and its plugin, that nobody can write to."""
BIN = f"{VERIFY}/bin"
"""The real uv, and bash."""
SHIMS = f"{VERIFY}/shim"
"""What stands in for the network's tools (:mod:`sandbox.toolchain.in_container.shim`)."""
CREATED_PATHS_FILE = "/tests/.longshore-made"
"""Where stand-ins name what they make outside the tests' folder, each path ended by NUL."""
SHIMS_ANSWER_VARIABLE = "LONGSHORE_KIT_ANSWERS"
"""In the environment of tests that are the kit's: the stand-ins do what they can, also where there is a network and the
real uv could do it, with the agent's projects."""
IMPORTABLE_VARIABLE = "LONGSHORE_IMPORTABLE"
"""In their environment too: folders of ``/`` that tests may import from there, with ``:`` between."""
FACTS_FILE = "/.sbx/kit.json"
"""There in every kit that has its verifier half."""

BASH = "/.sbx/bash"
"""A static bash."""
BUSYBOX = "/.sbx/busybox"
TOOLS = "/.sbx/bin"
"""busybox's tools, static."""
GNU = f"{VERIFY}/gnu"
"""GNU's, of those that test scripts read and compare with."""
TOOL_FOLDERS = (GNU, TOOLS)


def verify_environment(path: str, fresh: str, *, ours_first: bool = False, offline: bool = True) -> dict[str, str]:
    """For the verify phase; ``path`` is the image's PATH, ``fresh`` a folder that the agent had no hand in.

    ``ours_first``: the kit's tools come before the image's, else after them, for an image that lacks some.  The real uv
    keeps no cache between its calls, and what it makes lies in ``fresh``: elsewhere the agent could have put its own.
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
