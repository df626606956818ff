"""Derives the present state of a run from its events and metrics, with bounded memory.

Layers, lowest first: ``sanitize``, ``event_text``, ``model``, ``event_rules``, ``past_totals``, ``view``, ``store``.
"""
