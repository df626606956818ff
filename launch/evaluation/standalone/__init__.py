"""Standalone evaluations (``longshore evaluate``).

``evaluation`` wires one, ``evaluation_context`` opens sandboxes, reward and solver, ``attempt_runner`` runs attempts.
"""
