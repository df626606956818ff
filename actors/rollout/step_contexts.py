"""The prompt contexts of an episode: one for each step of its task, in which the agent's history begins anew.

As in Harbor, where each step is a run of its own of the agent.  The segments of all are those of one trajectory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from actors.rollout.policy import open_prompt_context
from actors.rollout.settings import EpisodeSettings
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.prompt_context import PromptContext
from protocol.trajectory import Segment


@dataclass(frozen=True, slots=True)
class StepContexts:
    """The contexts of the steps so far; the token limits of ``settings`` hold for all together."""

    settings: EpisodeSettings
    chat: ChatFormat
    _contexts: list[PromptContext] = field(default_factory=list[PromptContext])

    def open(self, opening: list[ChatMessage]) -> PromptContext:
        """Open the context of the next step, which begins with ``opening``."""
        used = sum(map(len, self.segments()))
        self._contexts.append(open_prompt_context(self.settings, self.chat, opening, used))
        return self._contexts[-1]

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments of all steps; a later step without a reply has none."""
        found: list[Segment] = []
        for context in self._with_replies():
            start = len(found)
            found += (
                replace(each, parent=each.parent + start) if each.parent >= 0 else each for each in context.segments()
            )
        return tuple(found)

    @property
    def turn_order(self) -> Sequence[int]:
        """Number of each model turn in the episode, in the order of the segments."""
        order: list[int] = []
        for context in self._with_replies():
            start = len(order)
            order += (number + start for number in context.turn_order)
        return order

    def _with_replies(self) -> list[PromptContext]:
        return [each for each in self._contexts if len(each.turn_order) or each is self._contexts[0]]
