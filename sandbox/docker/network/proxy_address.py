"""The address at which an egress proxy listens in every sandbox's network namespace, and what its replies begin with.

Settings need it, so this module imports no client of the Docker daemon.
"""

from __future__ import annotations

PROXY_HOST, PROXY_PORT = "127.0.0.1", 3128
PROXY_SAYS = "longshore egress proxy: "
"""How a reply of the proxy itself begins."""
