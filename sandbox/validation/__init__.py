"""Examines readable tasks for ``longshore tasks``.

``network_needs`` and ``network_requests`` find what a task needs from the network, ``live_answers`` whether something
must run for its tests, ``task_warnings`` what its author should know; ``proofs`` and ``attacks`` try it in real
containers, so many at a time as ``bounded`` lets; ``dataset_report`` summarises a data set, and ``commands`` reports.
"""
