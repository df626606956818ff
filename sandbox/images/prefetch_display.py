"""Shows a prefetch on standard error: a table that is updated on a terminal, otherwise a line for each image."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from protocol.cli.formatting import format_bytes, format_duration, one_line, truncate_text
from protocol.processes.task_groups import task_group
from sandbox.images.prefetch import ImageState, PrefetchedImage

_REFRESH_S = 0.25
_LINE_S = 30.0
"""Seconds between two lines about what is being made, without a terminal."""
_TITLE_CHARACTERS = 40


class PrefetchDisplay:
    """The state of all images as text."""

    def __init__(self, images: Sequence[PrefetchedImage], console: Console) -> None:
        self._images, self._console = images, console
        self._began = time.monotonic()

    def note_change(self, image: PrefetchedImage) -> None:
        """Print a line for an image that is ready or has failed; on a terminal only for the latter."""
        took = format_duration(time.monotonic() - image.began)
        if image.state is ImageState.FAILED:
            self._console.print(f"failed: {image.title}, {image.progress.step or one_line(str(image.error))}, {took}")
        elif image.state is ImageState.READY and not image.existed and not self._console.is_terminal:
            self._console.print(f"ready: {image.title}, {took} ({self.counts()})")

    def counts(self) -> str:
        """Return how many images are ready, are being made and have failed."""
        by_state = {state: sum(image.state is state for image in self._images) for state in ImageState}
        parts = [f"images: {by_state[ImageState.READY]} of {len(self._images)} ready"]
        if by_state[ImageState.FAILED]:
            parts.append(f"{by_state[ImageState.FAILED]} failed")
        if fetched := sum(image.progress.fetched_bytes for image in self._images):
            parts.append(f"{format_bytes(fetched)} fetched")
        return ", ".join(parts)

    def table(self) -> RenderableType:
        """Return the counts and a row for each image that is being made."""
        now = time.monotonic()
        rows = Table.grid(padding=(0, 2))
        for _ in range(3):
            rows.add_column(no_wrap=True, overflow="ellipsis")
        for image in self._making():
            title = truncate_text(image.title, _TITLE_CHARACTERS)
            rows.add_row(Text(f"  {title}"), format_duration(now - image.began), Text(_doing(image)))
        return Group(Text(f"{self.counts()}, {format_duration(now - self._began)}", style="bold"), rows)

    def lines(self) -> list[str]:
        """Return a line for each image that is being made."""
        now = time.monotonic()
        return [f"still: {each.title}, {_doing(each)}, {format_duration(now - each.began)}" for each in self._making()]

    def _making(self) -> list[PrefetchedImage]:
        return [image for image in self._images if image.state is ImageState.MAKING]


def _doing(image: PrefetchedImage) -> str:
    fetched = format_bytes(image.progress.fetched_bytes) if image.progress.fetched_bytes else ""
    otherwise = "build" if image.source.build else f"pull {image.name}"
    return ", ".join(filter(None, (image.progress.step or otherwise, fetched)))


@asynccontextmanager
async def show_prefetch(display: PrefetchDisplay, console: Console) -> AsyncGenerator[None]:
    """Show ``display`` until the block ends."""
    async with task_group() as group:
        shown = group.create_task(_live(display, console) if console.is_terminal else _lines(display, console))
        try:
            yield
        finally:
            shown.cancel()


async def _live(display: PrefetchDisplay, console: Console) -> None:
    with Live(display.table(), console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(display.table(), refresh=True)
            await asyncio.sleep(_REFRESH_S)


async def _lines(display: PrefetchDisplay, console: Console) -> None:
    while True:
        await asyncio.sleep(_LINE_S)
        for line in display.lines():
            console.print(line)
