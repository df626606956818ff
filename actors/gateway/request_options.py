"""Rules for a request's options: supported, harmless or refused.

The engine reports log softmax(logits / temperature) over the full vocabulary.  With top-p, a penalty or a grammar it
would sample from another distribution, and training would use wrong log-probabilities.  So an option is supported, or
known to change no token, or has its neutral value; all others, unknown ones included, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from actors.gateway.chat_request import GatewayRequestError

S = TypeVar("S", bound=msgspec.Struct)

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class RequestOptionRules:
    """Option rules of one API, by name."""

    harmless: frozenset[str]
    """Options that are accepted and ignored: no sampled token depends on them."""
    neutral: Mapping[str, object]
    """Options that are accepted only with the given value."""

    def read_request(self, body: bytes, model: type[S]) -> S:
        """Parse ``body`` and check its other options.  Raises :class:`GatewayRequestError`."""
        try:
            given = _RAW.decode(body)
            for name in given.keys() - self.harmless - set(model.__struct_encode_fields__):
                self._check(name, _ANY.decode(given[name]))
            return msgspec.json.decode(body, type=model)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise GatewayRequestError(f"the request cannot be read: {error}") from error

    def _check(self, name: str, value: object) -> None:
        if value is None:
            return
        if name not in self.neutral:
            raise GatewayRequestError(
                f"{name} is unknown and might change the sampled tokens: leave it out", parameter=name
            )
        if value != (neutral := self.neutral[name]):
            only = "" if neutral is None else f" or use {msgspec.json.encode(neutral).decode()}"
            raise GatewayRequestError(
                f"{name} = {msgspec.json.encode(value).decode()[:100]} would sample from another distribution than the "
                f"log-probabilities describe, or is not supported: leave it out{only}",
                parameter=name,
            )
