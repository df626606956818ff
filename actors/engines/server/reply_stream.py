"""Parses and checks the stream of one reply, and keeps it, so that a reply that is cut off is not lost.

Pure.  A chunk holds the tokens since the chunk before; the last one says how sampling ended and which version sampled
which tokens.  Until then versions are inferred from when chunks arrive: chunks before a weight swap belong to the old
version, the first chunk after it may begin with old tokens and counts as old, and later ones belong to the new version.
A stream that contradicts itself raises :class:`ServerLost`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from actors.engines.messages import FinishReason, PartialReply, RequestRefused, ServerLost


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens ``[start, end)`` of a reply were sampled by ``version``."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SampledReply:
    """A whole reply; the lists have equal length."""

    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: FinishReason
    cached_tokens: int


class _Chunk(NamedTuple):
    """One parsed chunk."""

    token_ids: list[int]
    logprobs: list[float]
    finish: FinishReason | None
    spans: list[VersionSpan]
    """The versions of the whole reply; only in its last chunk."""
    cached_tokens: int


def expand_spans(spans: list[VersionSpan], count: int) -> list[int]:
    """Return the version of each of ``count`` tokens.  Raises :class:`ServerLost` unless the spans cover each once."""
    versions: list[int] = []
    for span in spans:
        if span.start != len(versions) or span.end <= span.start:
            raise ServerLost(f"version spans have a hole, overlap or are empty at token {len(versions)}: {spans}")
        versions += [span.version] * (span.end - span.start)
    if len(versions) != count:
        raise ServerLost(f"version spans cover {len(versions)} of {count} tokens: {spans}")
    return versions


class ReplyStream:
    """One reply of at most ``most`` tokens, begun under ``version``.  Under an ``adapter`` all of it has that version,
    because the server does not report any.  ``on_tokens`` is called when tokens arrive and more will follow."""

    def __init__(
        self, most: int, version: int, *, adapter: bool = False, on_tokens: Callable[[], None] = lambda: None
    ) -> None:
        self._most, self._adapter, self._on_tokens = most, adapter, on_tokens
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._versions: list[int] = []
        self._version = self._next_version = version
        """The versions of the next chunk and of those after it."""

    def parse_chunk(self, line: bytes) -> SampledReply | None:
        """Return the whole reply with its last chunk, else None.  Raises :class:`ServerLost`, or
        :class:`RequestRefused` if the server says that the request can never be served."""
        chunk = _read(line)
        count, least, most = len(self._token_ids) + len(chunk.token_ids), 1, self._most
        if chunk.finish is None:  # the server reports an end with the last token
            least, most = 0, most - 1
        if not least <= count <= most:
            raise ServerLost(f"{count} tokens of at most {self._most}, and the reply has the end {chunk.finish}")
        if chunk.finish is None:  # the last chunk is not kept: nothing continues behind an end
            self._keep(chunk)
            return None
        versions = [self._version] * count if self._adapter else expand_spans(chunk.spans, count)
        return SampledReply(
            self._token_ids + chunk.token_ids,
            self._logprobs + chunk.logprobs,
            versions,
            chunk.finish,
            chunk.cached_tokens,
        )

    def _keep(self, chunk: _Chunk) -> None:
        if not chunk.token_ids:
            return
        self._token_ids += chunk.token_ids
        self._logprobs += chunk.logprobs
        self._versions += [self._version] * len(chunk.token_ids)
        self._version = self._next_version
        self._on_tokens()

    @property
    def token_count(self) -> int:
        """Number of tokens that have arrived."""
        return len(self._token_ids)

    def note_weight_change(self, version: int) -> None:
        """Record that the server is about to continue with other weights."""
        self._next_version = version

    def partial_reply(self, key_version: int) -> PartialReply:
        """Return the tokens that have arrived of a request dispatched under a key of version ``key_version``."""
        mixed = bool(self._versions) and self._versions[0] != key_version
        return PartialReply([*self._token_ids], [*self._logprobs], [*self._versions], mixed)


def _read(line: bytes) -> _Chunk:
    try:
        message: dict[str, Any] = orjson.loads(line)
        if error := message.get("error"):
            raise _refusal(error)
        meta = message["meta_info"]
        ended = meta["finish_reason"]
        scored = [(float(entry[0]), int(entry[1])) for entry in meta["output_token_logprobs"]]
        chunk = _Chunk(
            [int(token) for token in message["output_ids"]],
            [logprob for logprob, _ in scored],
            None if ended is None else ended["type"],
            [
                VersionSpan(int(span["version"]), int(span["start"]), int(span["end"]))
                for span in meta.get("weight_versions", ())
            ],
            int(meta["cached_tokens"]),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ServerLost(f"the server's reply cannot be read ({error!r}): {line[:200]!r}") from error
    if chunk.finish not in {None, "stop", "length"}:
        raise ServerLost(f"the server ended the request itself: {ended}")
    if [token for _, token in scored] != chunk.token_ids:
        raise ServerLost(f"{len(chunk.token_ids)} ids do not match {len(scored)} log-probabilities")
    return chunk


def _refusal(error: dict[str, Any]) -> RequestRefused | ServerLost:
    why = f"/generate: {error.get('code')} {error.get('message')}"
    return RequestRefused(why) if error.get("code") == 400 else ServerLost(why)
