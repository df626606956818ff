"""Decides whether the toolchain's or the image's programs run a task's tests, and with which environment.

It only reads text: each module judges one aspect of a script, ``command_reader`` reads it from top to bottom, and
``decision`` combines them.
"""
