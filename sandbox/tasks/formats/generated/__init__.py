"""Generated tasks: ``generator`` makes a task of a family, a seed and a split.

It stands on ``families``, which stand on ``vocabulary`` and ``shell_checks``.
"""
