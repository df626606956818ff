"""The address of an OpenAI-compatible API.  Pure, and loads no HTTP client."""

from __future__ import annotations

from urllib.parse import urlsplit


def api_base_url(url: str) -> str:
    """Return the base of an API's methods: ``url`` itself, or its ``/v1`` if ``url`` names a server alone."""
    base = url.rstrip("/")
    return base if urlsplit(base).path else f"{base}/v1"
