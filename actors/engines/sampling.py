"""Sampling of one episode's replies: everything of a request to an engine that does not change from reply to reply."""

from __future__ import annotations

from dataclasses import dataclass

from actors.engines.messages import GenerateRequest

_SEED_MASK = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSampling:
    """Sampling options and deadlines shared by all replies of one episode."""

    temperature: float
    seed: int
    greedy: bool
    session: str
    """Identifies the episode at the engines, for prefix reuse."""
    reply_timeout_s: float
    """Longest wait for one reply."""
    restart_timeout_s: float
    """Longest additional wait of one reply for an engine that restarts."""

    def make_request(
        self, input_ids: list[int], max_new_tokens: int, stop_ids: tuple[int, ...], number: int
    ) -> GenerateRequest:
        """Return the request for the episode's reply ``number``, which ends with one of ``stop_ids``."""
        return GenerateRequest(
            input_ids=input_ids,
            max_new_tokens=max_new_tokens,
            temperature=self.temperature,
            stop_token_ids=stop_ids,
            seed=(self.seed + number) & _SEED_MASK,
            greedy=self.greedy,
            session=self.session,
            deadline_s=self.reply_timeout_s,
            restart_s=self.restart_timeout_s,
        )
