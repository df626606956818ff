"""Published agent harnesses, which run in any task's sandbox as they were released.

Each is one record (``npm_harnesses``, ``pypi_harnesses``, in the ``catalog``): a package at a pinned version, its
command, and the settings with which it speaks to the gateway alone: no telemetry, no search for updates, no login.
``longshore harness install`` puts it into a folder of longshore's home, complete with its runtime, loader and libraries
(``installation``, ``node_runtime``, ``python_runtime``).  The folder is mounted read-only at
:data:`~sandbox.docker.container_spec.AGENT_PROGRAMS` in the sandboxes of a run, so a task's image needs neither Node
nor Python, and may have any libc.  ``start_command`` is what the sandbox's shell runs: it writes the harness's settings
into a new folder of the agent's user, which is removed when the harness ends.
"""
