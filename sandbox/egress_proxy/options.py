"""The command-line options of the egress proxy."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import ValidationError
from tyro.conf import UseAppendAction

from protocol.cli.arguments import CommandArguments, option
from protocol.settings import explain_errors
from sandbox.egress_proxy.settings import CacheSize, EgressProxySettings

S = TypeVar("S", bound=EgressProxySettings)
_DEFAULTS = EgressProxySettings()


class EgressProxyOptions(CommandArguments):
    """Options of every command that starts an egress proxy."""

    allow_host: UseAppendAction[Annotated[tuple[str, ...], option("HOST")]] = _DEFAULTS.allow_hosts
    """Host that network `proxy` permits in addition to the task's own, for example *.example.org."""
    python_index: Annotated[str, option("URL")] = _DEFAULTS.python_index
    """Package index for pip and uv; files are cached."""
    npm_index: Annotated[str, option("URL")] = _DEFAULTS.npm_index
    """Package index for npm; files are cached."""
    proxy_gb: Annotated[CacheSize, option("GB")] = _DEFAULTS.proxy_gb
    """Maximum size of the cache."""

    def proxy_settings(self, model: type[S], **values: Any) -> S:
        """Return settings of the proxy, or of a section that contains them, with ``values`` added. Raises UserError."""
        proxy = {
            "allow_hosts": self.allow_host,
            "python_index": self.python_index,
            "npm_index": self.npm_index,
            "proxy_gb": self.proxy_gb,
        }
        try:
            return model.model_validate(proxy | values)
        except ValidationError as error:
            raise explain_errors(model, error, "command line") from error
