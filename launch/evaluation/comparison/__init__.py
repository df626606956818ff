"""Compares evaluations of the same tasks with the first one.

``compared_evaluation`` opens them, ``compatibility`` refuses those that cannot be compared, ``paired_tasks`` computes,
``comparison_tables`` and ``comparison_page`` show the result.
"""
