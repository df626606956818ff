"""Tools for processes and asyncio tasks: stack dumps, task stacks, task groups, cancellation, ports and torch
rendezvous.  It imports only protocol.errors."""
