"""Integers of files and messages, whose bounds msgspec checks as it decodes them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

INT64_MAX = (1 << 63) - 1
MAX_SAFE_INTEGER = (1 << 53) - 1
"""Largest integer that every JSON reader represents exactly."""
Int64: TypeAlias = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
UInt63: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
