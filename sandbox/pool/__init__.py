"""Sandboxes of one machine for many episodes: bounded in number, started as fast as the machine can, kept alive by a
heartbeat, watched for their disk use, and swept when their owner has died.

Layers, from below: settings, leases (rules of the pool server), start_limiter and deleted_files; warm_sandboxes and
leftovers; warm_pool, disk_watch, orphans and sweep; container_template and heartbeat; sandbox_pool. An episode waits
for the pool's slot and its start; the pool waits for the Docker daemon only.
"""
