"""The toolchain: our programs in every sandbox, mounted read-only at ``/.sbx``.

``init``, ``busybox`` with ``bin/``, and ``bash`` are PID 1, tools and shells, all static.  ``verify/`` holds what the
tests of the public formats would fetch from the network: a Python of our own with an environment that has pytest in it;
GNU tools that read and print; shims for apt-get, curl, wget, uv and uvx, which answer from the toolchain
(:mod:`sandbox.toolchain.in_container.shim_rules`); a static uv and wheels for everything else.  ``locale/`` and
``nsswitchconf`` are what libc reads in these programs in place of the container's.

The Python and the tools bring their loader and libraries along (:mod:`sandbox.toolchain.relocation`), so that they run
in an image with any libc, and nothing in the image can load itself into them (:mod:`sandbox.toolchain.glibc_sealing`):
not an old glibc, not musl, not what an agent put where glibc looks.  ``verify/`` is on PATH only at grading
(:mod:`sandbox.toolchain.in_container.layout`).

Layers: ``in_container`` is copied into containers; ``downloads``, ``glibc_sealing``, ``relocation``,
``portable_python``, ``gnu_tools`` and ``verifier_programs`` make the parts; ``build`` makes the whole.
"""
