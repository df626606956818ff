"""An episode's stages on the wall clock: reset, agent, evaluate, clean-up.

No stage takes the time of one that comes after it: the agent's ends while there is time left to grade, grading while
there is time left to clean up.  One that is not over by then is infrastructure's failure and says which it was, for
what the *agent* may use is counted by a clock of its own, which is up long before (:class:`actors.rollout.episode.Episode`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from protocol.errors import InfraError


class StageOverrun(InfraError):
    """A stage was not over in its time."""


@dataclass(frozen=True, slots=True)
class StageDeadlines:
    """When stages have to be over, by the event loop's clock; None for never."""

    agent: float | None = None
    evaluate: float | None = None

    @staticmethod
    def for_episode(begun: float, episode_s: float, *, evaluate_s: float, after_s: float) -> StageDeadlines:
        """Of an episode that began then and may take ``episode_s``, of which grading and what comes after it (a judge,
        clean-up) have their shares."""
        by = begun + episode_s - after_s
        return StageDeadlines(agent=by - evaluate_s, evaluate=by)


NO_DEADLINES = StageDeadlines()


@asynccontextmanager
async def run_stage(name: str, by: float | None) -> AsyncGenerator[None]:
    """Raises :class:`StageOverrun` where what is done in it goes on after ``by``."""
    begun = asyncio.get_running_loop().time()
    limit = asyncio.timeout_at(by)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if by is None or not limit.expired():
            raise
        raise StageOverrun(
            f"the episode's stage '{name}' was not over within the {by - begun:.0f} s left to it"
        ) from error
