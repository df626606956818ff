"""The command-line options of the egress proxy."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import ValidationError
from tyro.conf import UseAppendAction

from protocol.cli.arguments import CommandArguments, option, repeatable, setting
from protocol.settings import explain_errors
from sandbox.egress_proxy.settings import CacheSize, EgressProxySettings

S = TypeVar("S", bound=EgressProxySettings)
_DEFAULTS = EgressProxySettings()


class EgressProxyOptions(CommandArguments):
    """Options of every command that starts an egress proxy."""

    allow_host: UseAppendAction[Annotated[tuple[str, ...], repeatable("HOST")]] = _DEFAULTS.allow_hosts
    """Host that network `proxy` permits in addition to the task's own, for example *.example.org."""
    python_index: Annotated[str, option("URL"), setting(EgressProxySettings, "python_index")] = _DEFAULTS.python_index
    npm_index: Annotated[str, option("URL"), setting(EgressProxySettings, "npm_index")] = _DEFAULTS.npm_index
    proxy_gb: Annotated[CacheSize, option("GiB"), setting(EgressProxySettings, "proxy_gb")] = _DEFAULTS.proxy_gb

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
