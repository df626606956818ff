"""The pool server: this machine's sandboxes over HTTP, for trainers in other processes.

It has the endpoints of OpenClaw's terminal pool (their public client works unchanged) and a few more: groups of slots,
files, plain commands, metrics. One server owns one state directory and one pool name on one Docker daemon.

Nothing stays behind when a process dies: a lease ends at its deadline unless its client renews it, and a container ends
at its own deadline unless this server extends it. A restarted server takes over the running containers whose leases are
in its state directory, and removes the others.
"""
