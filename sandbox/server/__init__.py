"""The pool server: this machine's sandboxes over HTTP, for trainers in other processes.

It speaks the endpoints of OpenClaw's terminal pool (their public client works unchanged) and a few more: groups of
slots, files, plain commands, metrics. One server owns one state directory and one pool name on one Docker daemon.

Whoever dies, nothing stays behind: a lease ends at its deadline unless its client renews it, and a container ends at
its own deadline unless this server extends it. A server that starts again takes over the living containers whose leases
are in its state directory, and removes the others.

Layers, from below: operation_record and task_source; operations and journal; lease_state; lease_recovery; service;
metrics and app; the command.
"""
