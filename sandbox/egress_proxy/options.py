"""What a command line says about the gate: who may be reached in network ``proxy``, and which package indexes."""

from __future__ import annotations

import argparse

from protocol.cli.numbers import number_at_least
from sandbox.egress_proxy.settings import EgressProxySettings


def add_egress_proxy_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("network `proxy`").add_argument
    add("--allow-host", action="append", default=[], metavar="HOST", help="beside what each task lists; *.example.org")
    add("--python-index", default="", metavar="URL", help="package index for pip and uv; each file is fetched once")
    add("--npm-index", default="", metavar="URL", help="the same for npm")
    add("--proxy-gb", type=number_at_least(0), default=20.0, metavar="GB", help="most that fetched files may take up")


def egress_proxy_settings(chosen: argparse.Namespace) -> EgressProxySettings:
    """Raises UserError."""
    most_bytes = int(chosen.proxy_gb * (1 << 30))
    return EgressProxySettings(most_bytes, tuple(chosen.allow_host), chosen.python_index, chosen.npm_index)
