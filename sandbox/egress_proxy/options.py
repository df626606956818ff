"""The command-line options of the egress proxy."""

from __future__ import annotations

import argparse
from typing import Any, TypeVar

from pydantic import ValidationError

from protocol.cli.numbers import number_at_least
from protocol.settings import explain_errors
from sandbox.egress_proxy.settings import EgressProxySettings

S = TypeVar("S", bound=EgressProxySettings)


def add_egress_proxy_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :class:`EgressProxySettings` in a group of their own."""
    add = parser.add_argument_group("network `proxy`").add_argument
    add("--allow-host", action="append", default=[], metavar="HOST", help="beside what each task lists; *.example.org")
    add("--python-index", default="", metavar="URL", help="package index for pip and uv; each file is fetched once")
    add("--npm-index", default="", metavar="URL", help="package index for npm")
    add("--proxy-gb", type=number_at_least(0), default=20.0, metavar="GB", help="largest size of the cached files")


def settings_from_options(model: type[S], chosen: argparse.Namespace, **values: Any) -> S:
    """Make ``model`` of the options of :func:`add_egress_proxy_options` and ``values``.  Raises UserError."""
    proxy = {
        "allow_hosts": tuple(chosen.allow_host),
        "python_index": chosen.python_index,
        "npm_index": chosen.npm_index,
        "proxy_gb": chosen.proxy_gb,
    }
    try:
        return model.model_validate(proxy | values)
    except ValidationError as error:
        raise explain_errors(model, error, "command line") from error
