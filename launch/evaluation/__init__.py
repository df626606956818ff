"""Evaluations: of a run (before, beside and after training), standalone (``longshore evaluate``), and compared.

All produce the same attempts (:mod:`protocol.evaluation`), in folders of one format (``results``), with the same
``scores``.
"""
