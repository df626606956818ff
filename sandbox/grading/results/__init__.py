"""Reads what tests report and judges it. Pure.

``pytest_summary`` and ``report_files`` read the reports; ``verdict`` combines them by ``reported_names``.
"""
