"""How pydantic reads and writes the values of which a task consists."""

from __future__ import annotations

from pydantic import ConfigDict

STRICT = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
"""When one of these is read, an unknown key is an error; in JSON, bytes are URL-safe base64."""
