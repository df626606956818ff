"""What a process is to others on its machine and to its own tasks: stack dumps, task stacks and task groups, ports, and
where torch processes meet. It imports protocol.errors alone."""
