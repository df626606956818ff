"""Under which key a server caches the prefix of a request: what may be reused, and which weights made it.

- ``fresh``: by the weights that serve.  After an exchange nothing of older weights is read, and a session prefills its
  history anew.
- ``session``: by the session and the weights that served when it began.  It keeps its own prefix over exchanges, made
  by several weights then; log-probabilities are still those of the policy that sampled.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from protocol.weights import NO_VERSION, WeightVersion

PrefixReuse = Literal["fresh", "session"]


class PrefixKey(NamedTuple):
    text: str
    version: WeightVersion
    """The weights that made the prefix, where they all did."""


NO_PREFIX = PrefixKey("", NO_VERSION)


@dataclass(slots=True)
class PrefixKeys:
    """The keys of one server after the other."""

    reuse: PrefixReuse
    max_sessions: int = 100_000
    """The one that was silent longest begins anew."""
    _begun: OrderedDict[str, WeightVersion] = field(default_factory=OrderedDict[str, WeightVersion])

    def key_for_session(self, session: str, serving: WeightVersion) -> PrefixKey:
        """For a request that is dispatched while the server serves ``serving``."""
        if self.reuse == "fresh":
            return PrefixKey(f"v{serving}", serving)
        version = self._begun.setdefault(session, serving)
        self._begun.move_to_end(session)
        if len(self._begun) > self.max_sessions:
            self._begun.popitem(last=False)
        return PrefixKey(f"v{version}-{session}", version)

    def clear(self) -> None:
        """Another server is in use, which has cached nothing."""
        self._begun.clear()
