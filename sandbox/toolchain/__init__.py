"""The toolchain: longshore's programs in every sandbox, mounted read-only at ``/.sbx``.

``init``, ``busybox`` with ``bin/``, and ``bash`` are PID 1, tools and shells, all static; ``agent_input.so`` is loaded
by the bash of the agent's shells, which is the image's own. ``verify/`` holds what the tests of the public formats
would fetch from the network: a Python with an environment that has pytest in it; GNU tools that read and print; shims
for apt-get, curl, wget, uv and uvx, which answer from the toolchain
(:mod:`sandbox.toolchain.in_container.shim_rules`); a static uv and wheels for everything else. ``locale/`` and
``nsswitchconf`` are the files that libc reads in these programs instead of the container's.

The Python and the tools come with their loader and libraries (:mod:`sandbox.toolchain.relocation`), so that they run in
an image with any libc, and nothing in the image can load itself into them (:mod:`sandbox.toolchain.glibc_sealing`):
not an old glibc, not musl, not files that an agent put where glibc looks. ``verify/`` is on PATH only for grading
(:mod:`sandbox.toolchain.in_container.layout`).

Layers, from below: ``in_container`` is copied into containers; ``downloads``, ``glibc_sealing``, ``relocation``,
``portable_python``, ``gnu_tools`` and ``verifier_programs`` make the parts; ``build`` makes the whole.
"""
