"""Examines readable tasks for ``longshore tasks validate``.

``network_needs`` and ``network_requests`` find what a task needs from the network, ``live_answers`` whether something
must run for its tests, ``task_warnings`` what its author should know, ``proofs`` tries it in real containers, and
``commands`` reports all of it.
"""
