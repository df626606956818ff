"""Data that crosses a process boundary, and the pure rules about it.

This package imports no other package of longshore, and neither torch, ray nor docker, so that a reader on a laptop or
a test needs only small packages to use it.
"""
