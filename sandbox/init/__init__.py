"""PID 1 of every sandbox: a C program, compiled once per digest and architecture (:mod:`sandbox.init.build`).

Called with ``links``, the same program removes links to the tests (``links.c``).
"""
