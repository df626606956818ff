"""One evaluation apart from any run.

`evaluation` wires it, `evaluation_context` opens sandboxes, rewards and solver, `attempt_runner` runs attempts at a
bounded concurrency.
"""
