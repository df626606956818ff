"""Starts a site: its name is the argument, its seed and secret are variables.  Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sandbox.tasks.sites.dashboard import Dashboard
from sandbox.tasks.sites.shop import Shop
from sandbox.tasks.sites.web_app import WebApp, serve_app
from sandbox.tasks.sites.wiki import Wiki

SITES: Mapping[str, Callable[[int, str], WebApp]] = MappingProxyType(
    {"shop": Shop, "wiki": Wiki, "dashboard": Dashboard}
)
"""Creates a site, by name, from its seed and its secret."""
SEED_VARIABLE, SECRET_VARIABLE = "SITE_SEED", "SITE_SECRET"


def main() -> None:
    """Serve the site until the process is killed."""
    app = SITES[sys.argv[1]](int(os.environ[SEED_VARIABLE]), os.environ[SECRET_VARIABLE])
    serve_app(app).serve_forever()
