"""Sandboxes of one machine for many episodes: bounded in number, started as fast as the machine can, kept alive by a
heartbeat, watched for their disk use, and swept when their owner has died.

An episode waits for the pool's slot and its start; the pool waits only for the Docker daemon.
"""
