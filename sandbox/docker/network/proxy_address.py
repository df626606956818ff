"""Where an egress proxy listens in a sandbox's network namespace."""

from __future__ import annotations

PROXY_HOST, PROXY_PORT = "127.0.0.1", 3128
