"""An episode's stages on the wall clock: reset, agent, evaluate, clean-up.

No stage takes the time of a later one: the agent's stage ends while there is time left to grade, grading while there is
time left to clean up.  A stage that overruns is an infrastructure failure and is named in its error, because the
agent's own time is counted separately and is used up long before (:mod:`actors.rollout.agent_loop`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from protocol.errors import InfraError


class StageOverrun(InfraError):
    """A stage did not end in time."""


@dataclass(frozen=True, slots=True)
class StageDeadlines:
    """Deadlines of the stages on the event loop's clock; None for no deadline."""

    agent: float | None = None
    evaluate: float | None = None

    @staticmethod
    def for_episode(begun: float, episode_s: float, *, evaluate_s: float, after_s: float) -> StageDeadlines:
        """Return the deadlines of an episode that began at ``begun`` and may take ``episode_s``, of which
        ``evaluate_s`` are reserved for grading and ``after_s`` for the time after it (a judge, clean-up)."""
        evaluate = begun + episode_s - after_s
        return StageDeadlines(agent=evaluate - evaluate_s, evaluate=evaluate)


NO_DEADLINES = StageDeadlines()


@asynccontextmanager
async def run_stage(name: str, by: float | None) -> AsyncGenerator[None]:
    """Run the block as the stage ``name``.  Raises :class:`StageOverrun` if it runs past ``by``."""
    begun = asyncio.get_running_loop().time()
    limit = asyncio.timeout_at(by)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if by is None or not limit.expired():
            raise
        raise StageOverrun(
            f"the episode's stage '{name}' did not end within the {by - begun:.0f} s that it had"
        ) from error
