"""The client of one Docker engine and of what it holds: containers, networks, committed images, owners, leaks.

Layers, from below: address, stream, labels and owner; retry; container_spec, container_end and inventory; engine; the
calls that are built on it, for files and for the network; leaks. daemon is the blocking side for set-up. No module
knows tasks.
"""
