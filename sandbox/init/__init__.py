"""PID 1 of every sandbox, a C program compiled once per digest and architecture (:mod:`sandbox.init.build`).  Called
with ``links`` it is another, which removes links to the tests (``links.c``)."""
