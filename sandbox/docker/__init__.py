"""The client of one Docker engine and of what it holds: containers, networks, committed images, owners, leaks.

Layers, from below: address, stream, labels and owner; retry; container_spec, container_end and inventory; engine; the
calls that are built on it (networks, committed_images, leaks, loop_disk, file_status, user_files, network_namespace,
container_sockets). daemon is the blocking side for set-up. No module knows tasks.
"""
