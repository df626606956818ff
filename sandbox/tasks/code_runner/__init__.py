"""Runs the tests of a code task against the candidate program, which lives in a separate process.

Two processes: the judge (``harness``, root) holds tests and expected values; the candidate (``candidate_server``, user
65534) holds the program and sees only arguments. Between them, data is copied (``value_codec``), and every other
object of the candidate is a number that the judge sees as a proxy (``proxies``).

Layers: ``harness`` runs cases; ``instrumentation`` rewrites test code, which ``object_inference`` and ``tests_parser``
read; ``candidate_program`` starts the other process and ``candidate_client`` talks to it, over ``candidate_channel``.
All of it but ``shared_state`` is copied into the sandbox and runs there on any Python from 3.9.
"""
