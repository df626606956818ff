"""Settings of the live page: ``[monitor]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from protocol.settings import ConfigSection


class MonitorSettings(ConfigSection):
    enabled: bool = True
    """Whether the live page is served."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the page on 127.0.0.1; 0 for a free one."""
