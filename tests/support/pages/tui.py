"""The terminal monitor under textual's Pilot: what it shows as text, and a wait for what it should show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from launch.monitor.tui.app import MonitorApp

GENEROUS_S = 120


class MonitorUser:
    """A person at the monitor."""

    def __init__(self, app: MonitorApp, pilot: Pilot[None]) -> None:
        self.app, self._pilot = app, pilot

    @property
    def text(self) -> str:
        """The whole screen."""
        strips = self.app.screen._compositor.render_strips()  # noqa: SLF001  textual offers no text of its screen
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def type(self, words: str) -> None:
        await self._pilot.press(*words)

    async def resize(self, width: int, height: int) -> None:
        await self._pilot.resize_terminal(width, height)

    async def wait_for_text(self, *texts: str) -> str:
        """Waits for all of it to be on the screen."""
        await self.wait_until(lambda: all(each in self.text for each in texts), f"{texts}")
        return self.text

    async def wait_until(self, holds: Callable[[], bool], what: str = "it") -> None:
        try:
            async with asyncio.timeout(GENEROUS_S):
                while not holds():
                    await self._pilot.pause(0.05)
        except TimeoutError:
            raise AssertionError(f"never seen: {what}\n{self.text}") from None


@asynccontextmanager
async def open_monitor(
    run_dir: Path, size: tuple[int, int] = (120, 40), *, light: bool = False
) -> AsyncIterator[MonitorUser]:
    app = MonitorApp(run_dir, light=light)
    async with app.run_test(size=size) as pilot:
        yield MonitorUser(app, pilot)
