"""A rollout scheduler that only hears of the run's state."""

from __future__ import annotations

from actors.scheduler.settings import SchedulerRunState


class FakeScheduler:
    def __init__(self) -> None:
        self.published: list[int] = []
        """Served step of each state."""

    async def set_run_state(self, state: SchedulerRunState) -> None:
        self.published.append(state.served_step)
