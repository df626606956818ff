"""Keys of prefix caches, which decide the prefixes that a request may reuse.

- ``version``: keyed by the serving version.  After a weight swap nothing of older weights is reused, and each session
  prefills its history again.
- ``session``: keyed by the session and the version that served when it began.  A session keeps its own prefix over
  weight swaps, computed by several versions; log-probabilities are still those of the policy that sampled.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.engines.settings import PrefixReuse
from protocol.weights import NO_VERSION, WeightVersion


class PrefixKey(NamedTuple):
    """A prefix-cache key."""

    text: str
    version: WeightVersion
    """The version that computed the prefix, if a single one did."""


NO_PREFIX = PrefixKey("", NO_VERSION)


@dataclass(slots=True)
class PrefixKeys:
    """The prefix-cache keys of an engine's current server."""

    reuse: PrefixReuse
    max_sessions: int = 100_000
    """Most sessions; beyond it the session that was idle longest starts over."""
    _begun: OrderedDict[str, WeightVersion] = field(default_factory=OrderedDict[str, WeightVersion])

    def key_for_session(self, session: str, serving: WeightVersion) -> PrefixKey:
        """Return the key of a request that is dispatched while version ``serving`` serves."""
        if self.reuse == "version":
            return PrefixKey(f"v{serving}", serving)
        version = self._begun.setdefault(session, serving)
        self._begun.move_to_end(session)
        if len(self._begun) > self.max_sessions:
            self._begun.popitem(last=False)
        return PrefixKey(f"v{version}-{session}", version)

    def clear(self) -> None:
        """Forget all sessions: the next server has cached nothing."""
        self._begun.clear()
