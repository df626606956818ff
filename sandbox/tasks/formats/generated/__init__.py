"""Generated tasks: ``generator`` creates a task from a family, a seed and a split.

It uses ``families``, which use ``vocabulary`` and ``shell_checks``.
"""
