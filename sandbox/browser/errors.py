"""Errors of the browser."""

from __future__ import annotations


class BrowserActionError(Exception):
    """An action cannot be done as the agent gave it; the message says why, for the agent."""
