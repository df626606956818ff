"""The part of the toolchain that is copied into containers and runs there on the toolchain's own Python.

These are the shims for apt-get, curl, wget, uv and uvx, their rules, and pytest's guard. They import only the standard
library and each other.
"""
