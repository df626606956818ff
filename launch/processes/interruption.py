"""Stops a command's coroutine on SIGINT or SIGTERM: in order at the first signal, at once at the second."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from types import FrameType

from protocol.cli.exit_codes import EXIT_INTERRUPTED
from protocol.cli.output import JsonOutput, error_console
from protocol.events import JsonValue

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def run_interruptible(
    work: Coroutine[object, object, dict[str, JsonValue]], resume_command: str
) -> dict[str, JsonValue]:
    """Run ``work``; the first SIGINT or SIGTERM cancels it, the second ends the process.

    Raises KeyboardInterrupt after an orderly stop.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # called in a task
    interrupted = False

    def stop() -> None:
        nonlocal interrupted
        interrupted = True
        for number in _STOP_SIGNALS:  # to the end of the process: also while it waits for a thread
            loop.remove_signal_handler(number)
            signal.signal(number, _stop_at_once)
        task.cancel()
        with contextlib.suppress(OSError):  # an interrupt ends the reader too: `… 2>&1 | tee log`
            error_console().print(
                f"\nstopping; press Ctrl-C again to stop at once. To continue later: {resume_command}"
            )

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        return await work
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        if not interrupted:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)


def _stop_at_once(number: int, frame: FrameType | None) -> None:
    del number, frame
    JsonOutput.end_process(EXIT_INTERRUPTED, "interrupted")
