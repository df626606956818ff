"""Files that are whole or not there: file systems, durable writes, digests and deltas.

The lowest layer: it imports protocol.errors alone.
"""
