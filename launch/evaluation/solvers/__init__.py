"""Solvers of tasks: a served model, a model at a URL, a harness in the sandbox, the task's own solution, or nothing.

``solver`` has the interface; ``models`` and ``harnesses`` implement it; ``api_relay`` forwards requests of a harness to
a URL.
"""
