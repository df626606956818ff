"""Sandboxes of one machine for many episodes: bounded in number, started as fast as the machine can, kept alive by a
heartbeat, watched for their disk use, and swept when their owner has died.

Layers, from below: settings, leases (rules of the pool server), start_limiter, deleted_files, orphans and
warm_sandboxes; disk_bound, warm_pool, unanswered_calls and run_orphans; disk_watch, container_template and heartbeat;
cleanup; sandbox_pool. An episode waits for the pool's slot and its start; the pool waits only for the Docker daemon.
"""
