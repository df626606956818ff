"""The kit: what is ours in every sandbox, mounted read-only at ``/.sbx``.

* ``init``, ``busybox`` with ``bin/``, ``bash``: PID 1, tools and shells, all static.
* ``verify/``: what the tests of the public formats fetch from the network, so that they pass without one: a static uv,
  a Python of our own that uv takes for one it installed, the wheels of pytest, and shims for curl, wget and apt-get.

The Python brings its loader and libraries along, so that it runs in an image with any libc, and nothing in the image
can load itself into it: not an old glibc, not musl, not an ``/etc/ld.so.preload`` that an agent wrote.  ``verify/`` is
put on PATH at grading and not before (:mod:`sandbox.kit.phase`).
"""
