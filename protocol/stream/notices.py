"""Reports about peers: counts all of them, and passes on a bounded number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from protocol.stream.inbox import StreamRefusal
from protocol.stream.messages import RefusalReason
from protocol.stream.throttle import NoticeThrottle

OnRefused: TypeAlias = Callable[[RefusalReason, str, str], None]
"""Called with the reason, the sender (or its address, or its key) and the detail."""
OnUnroutable: TypeAlias = Callable[[str, str], None]
"""Called with the sender that an answer did not reach, and the kind of the answer."""
OnDisconnected: TypeAlias = Callable[[str], None]
"""Called with the address of a peer whose connection ended: the peer closed it, the network broke it, or a frame was
above the limit.  ZeroMQ does not distinguish these."""

_BURST, _INTERVAL_S = 20, 10.0
"""Number of reports of one kind that are passed on at once, and the interval of later ones."""


class PeerNotices:
    """Passes reports on to the callbacks at a bounded rate, however often a peer fails."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        on_refused: OnRefused | None,
        on_unroutable: OnUnroutable | None,
        on_disconnected: OnDisconnected | None,
    ) -> None:
        """``clock`` returns monotonic seconds."""
        self._clock, self._throttle = clock, NoticeThrottle(_BURST, _INTERVAL_S)
        self._on_refused, self._on_unroutable, self._on_disconnected = on_refused, on_unroutable, on_disconnected
        self.refused: Counter[RefusalReason] = Counter()
        """All refusals by reason, including those that were not passed on."""
        self.unroutable = 0
        """All answers that found no connection."""

    def report_refused(self, refused: StreamRefusal, sender: str) -> None:
        """A message, a sender or a key was refused."""
        self.refused[refused.reason] += 1
        if self._on_refused is not None and (unreported := self._admit(refused.reason)) is not None:
            more = f"; {unreported} more of this kind since the last report" if unreported else ""
            self._on_refused(refused.reason, sender, refused.detail + more)

    def report_unroutable(self, sender: str, kind: str) -> None:
        """An answer of this kind found no connection to the sender."""
        self.unroutable += 1
        if self._on_unroutable is not None and self._admit("unroutable") is not None:
            self._on_unroutable(sender, kind)

    def report_disconnected(self, peer: str) -> None:
        """The connection of a peer ended."""
        if self._on_disconnected is not None and self._admit("disconnected") is not None:
            self._on_disconnected(peer)

    def _admit(self, kind: str) -> int | None:
        return self._throttle.admit(kind, self._clock())
