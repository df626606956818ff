"""PID 1 of every sandbox: one C file, compiled once per digest and architecture (:mod:`sandbox.init.build`)."""
