"""The kit: what is ours in every sandbox, mounted read-only at ``/.sbx``.

* ``init``, ``busybox`` with ``bin/``, ``bash``: PID 1, tools and shells, all static.
* ``verify/``: what the tests of the public formats fetch from the network, so that they pass without one.  A Python of
  our own with a ready environment that has pytest in it; GNU's tools that read and print; stand-ins for apt-get, curl,
  wget, uv and uvx, which answer what the kit has (:mod:`sandbox.toolchain.in_container.shim_rules`); a static uv and wheels for what they do
  not answer.
* ``locale/``, ``nsswitchconf``: what libc reads in these programs in place of the container's.

The Python and the tools bring their loader and libraries along (:mod:`sandbox.toolchain.relocation`), so that they run in an
image with any libc, and nothing in the image can load itself into them: not an old glibc, not musl, not what an agent
put where glibc looks by itself (:mod:`sandbox.toolchain.glibc_sealing`); no more into the static shell and tools.  ``verify/`` is
put on PATH at grading and not before (:mod:`sandbox.toolchain.in_container.layout`).
"""
