"""If these fail, a person who waits for images cannot see whether anything happens, or what failed."""

from __future__ import annotations

import io

from rich.console import Console

from sandbox.errors import ImageError
from sandbox.images.engine_log import ImageProgress
from sandbox.images.image_names import NeededImage
from sandbox.images.prefetch import ImageState, PrefetchedImage, prefetched_images
from sandbox.images.prefetch_display import PrefetchDisplay
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild

BUILD = ImageBuild({"Dockerfile": b"FROM a\n"})


def images() -> list[PrefetchedImage]:
    built, pulled, ready = prefetched_images(
        [
            NeededImage("web", Task("web", "", build=BUILD)),
            NeededImage("db", Task("db", "", image="db:1")),
            NeededImage("old", Task("old", "", image="old:1")),
            NeededImage("same", Task("same", "", build=BUILD)),
        ]
    )
    built.state, built.progress = ImageState.MAKING, ImageProgress("step 2/3: RUN make", 0)
    pulled.state, pulled.progress = ImageState.MAKING, ImageProgress("", 3 << 20)
    ready.state, ready.existed = ImageState.READY, True
    return [built, pulled, ready]


def shown(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=60, force_terminal=terminal, color_system=None, soft_wrap=True), out


def test_a_terminal_shows_what_is_being_made_in_lines_that_fit():
    console, out = shown(terminal=True)
    console.print(PrefetchDisplay(images(), console).table())
    counts, built, pulled = (line.rstrip() for line in out.getvalue().splitlines())
    assert counts.startswith("images: 1 of 3 ready, 3.0 MiB fetched, ")
    assert built.split()[:3] == ["web", "and", "1"]
    assert built.endswith("step 2/3: RUN make")
    assert pulled.endswith("pull db:1, 3.0 MiB")
    assert len(built) <= 60


def test_a_pipe_gets_a_line_for_each_image_that_was_made_or_failed():
    made, failed, existing = images()
    console, out = shown(terminal=False)
    display = PrefetchDisplay([made, failed, existing], console)
    made.state = ImageState.READY
    failed.state, failed.error = ImageState.FAILED, ImageError("could not pull db:1\nno such host")
    for image in (made, failed, existing):
        display.note_change(image)
    ready, wrong = out.getvalue().splitlines()
    assert ready.startswith("ready: web and 1 more, ")
    assert ready.endswith("(images: 2 of 3 ready, 1 failed, 3.0 MiB fetched)")
    assert wrong.startswith("failed: db, could not pull db:1 no such host, ")


def test_what_takes_long_is_said_again():
    console, _ = shown(terminal=False)
    assert [line.rpartition(",")[0] for line in PrefetchDisplay(images(), console).lines()] == [
        "still: web and 1 more, step 2/3: RUN make",
        "still: db, pull db:1, 3.0 MiB",
    ]
