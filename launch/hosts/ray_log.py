"""Redirects Ray's output in the driver's process to a file of the run's logs.

It has two sources: messages of Ray's nodes, which a thread prints as ``(raylet) …``, and Ray's logger.  The file gets
both; the logger's errors go to standard error too.  Errors that end a run are raised, so they are never only here.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protocol.run_directory.process_log import QuietFileHandler

_LOGGER = "ray"


@contextmanager
def redirect_ray_log(path: Path) -> Generator[None]:
    """Write Ray's output to ``path`` while the context is open."""
    from ray._private import worker  # Ray configures its logger when it is imported

    untyped: Any = worker
    logger, file = logging.getLogger(_LOGGER), QuietFileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    shown = [(handler, handler.level) for handler in logger.handlers]
    printed = untyped.print_to_stdstream

    def write_to_file(data: Mapping[str, Any], ignore_prefix: bool) -> None:
        del ignore_prefix
        for line in data["lines"]:
            file.handle(logging.LogRecord(_LOGGER, logging.WARNING, "", 0, f"({data['pid']}) {line}", None, None))

    for handler, _ in shown:
        handler.setLevel(logging.ERROR)
    logger.addHandler(file)
    untyped.print_to_stdstream = write_to_file
    try:
        yield
    finally:
        untyped.print_to_stdstream = printed
        logger.removeHandler(file)
        for handler, level in shown:
            handler.setLevel(level)
        file.close()
