"""Turns a leased batch of trajectories into packed micro-batches, without a device.

Layers, from below: micro-batches; their packing, sequences, checks and the context-parallel split; the account of
tokens; ``batch``, which reads a payload.
"""
