"""Atomic and durable files: file systems, writes, digests and deltas.

It imports only protocol.errors.
"""
