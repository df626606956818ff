"""The pool server: this machine's sandboxes over HTTP, for trainers that are not this process.

It speaks the endpoints of OpenClaw's terminal pool (their public client works unchanged) and a few more: groups of
slots, files, plain commands, metrics.  One server owns one state directory and one pool name on one Docker daemon.

Whoever dies, nothing is left: a lease ends at its deadline unless its client renews it, a container ends at its own
deadline unless this server extends it, and a server that starts again takes over the containers that still live and
whose leases it finds in its state directory, and removes the others.
"""
