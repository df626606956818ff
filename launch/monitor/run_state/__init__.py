"""Derives the present state of a run from its events and metrics, with bounded memory."""
