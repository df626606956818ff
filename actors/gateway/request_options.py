"""Which options of a request are taken, which change nothing, and which are refused.

The engine tells log softmax(logits / temperature) over the full vocabulary.  Under top-p, a penalty or a grammar it
would draw from another distribution, and what is trained would not be what was sampled.  So an option is taken, is
known to change no token, has the value that changes nothing, or is refused, as is one that nobody has heard of.
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
    """Of one API, by name."""

    harmless: frozenset[str]
    """Taken as they come, and not used: no sampled token depends on them."""
    neutral: Mapping[str, object]
    """Refused, but for the value that stands here."""

    def read_request(self, body: bytes, wanted: type[S]) -> S:
        """The request in ``body``, whose other options were looked at.  Raises :class:`Refused`."""
        try:
            given = _RAW.decode(body)
            for name in given.keys() - self.harmless - set(wanted.__struct_encode_fields__):
                self._check(name, _ANY.decode(given[name]))
            return msgspec.json.decode(body, type=wanted)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise GatewayRequestError(f"the request cannot be read: {error}") from error

    def _check(self, name: str, value: object) -> None:
        if value is None:
            return
        if name not in self.neutral:
            raise GatewayRequestError(
                f"{name} is not known here, and it might change what is sampled: leave it out", parameter=name
            )
        if value != (neutral := self.neutral[name]):
            only = "" if neutral is None else f" or say {msgspec.json.encode(neutral).decode()}"
            raise GatewayRequestError(
                f"{name} = {msgspec.json.encode(value).decode()[:100]} would sample from another distribution than the "
                f"log-probabilities tell of, or needs what this gateway has not: leave it out{only}",
                parameter=name,
            )
