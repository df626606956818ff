"""The log of a process: JSON lines with the ids of the step, group and rollout that they belong to.

A line is ``{"t": unix seconds, "level", "event", "logger", "run", "writer", "node", "step", "group", "rollout", …}``;
step, group and rollout are null if none applies.  Code that works on one of them binds its id once
(:func:`bind_log_ids`), and every line logged within, by libraries too, carries it.  Libraries log warnings and above
only.  Nothing goes to standard output, and logging never raises.  Events (:mod:`protocol.events`) are for users; this
log is for developers, with tracebacks.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.stdlib import BoundLogger, LoggerFactory, ProcessorFormatter, add_log_level, add_logger_name

_Line: TypeAlias = MutableMapping[str, Any]
_OURS = ("protocol", "sandbox", "actors", "learner", "launch")
_IDS = ("step", "group", "rollout")


def _seconds(logger: Any, method: str, line: _Line) -> _Line:
    """Take the time from the standard library's log record."""
    del logger, method
    record: logging.LogRecord | None = line.get("_record")
    line["t"] = round(record.created, 3) if record is not None else None
    return line


_SHARED: tuple[Any, ...] = (merge_contextvars, add_logger_name, add_log_level)
structlog.configure(
    processors=[*_SHARED, structlog.processors.format_exc_info, ProcessorFormatter.wrap_for_formatter],
    logger_factory=LoggerFactory(),
    wrapper_class=BoundLogger,
    cache_logger_on_first_use=True,
)


def get_logger(name: str) -> BoundLogger:
    """Return the logger of a module (``__name__``)."""
    return structlog.stdlib.get_logger(name)


def bind_log_ids(**ids: int | str) -> AbstractContextManager[None]:
    """Add ``ids`` (step, group, rollout) to every line logged in the body, by this task and those that it starts."""
    return _bound(ids)


@contextmanager
def _bound(ids: dict[str, int | str]) -> Generator[None]:
    with bound_contextvars(**ids):
        yield


@dataclass(frozen=True, slots=True)
class ProcessLog:
    """Log file and identity of one process of a run."""

    path: Path
    run: str
    writer: str
    node: str

    def install_handler(self) -> logging.Handler:
        """Start logging to the file until the process ends or the handler is removed (:meth:`handler_installed`)."""
        handler = QuietFileHandler(self.path)
        handler.setFormatter(
            ProcessorFormatter(
                foreign_pre_chain=[*_SHARED, structlog.processors.format_exc_info],
                processors=[_seconds, ProcessorFormatter.remove_processors_meta, self._line, _as_json],
                keep_exc_info=False,
            )
        )
        root = logging.getLogger()
        root.addHandler(handler)
        for name in _OURS:
            logging.getLogger(name).setLevel(logging.INFO)
        return handler

    @contextmanager
    def handler_installed(self) -> Generator[None]:
        """Log to the file while the body runs."""
        handler = self.install_handler()
        try:
            yield
        finally:
            logging.getLogger().removeHandler(handler)
            handler.close()

    def _line(self, logger: Any, method: str, line: _Line) -> _Line:
        """Order the fields for reading, with every id present."""
        del logger, method
        head = {name: line.pop(name, None) for name in ("t", "level", "event", "logger")}
        origin = {"run": self.run, "writer": self.writer, "node": self.node}
        return {**head, **origin, **{name: line.pop(name, None) for name in _IDS}, **line}


def _as_json(logger: Any, method: str, line: _Line) -> str:
    del logger, method
    return orjson.dumps(dict(line), default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class QuietFileHandler(logging.FileHandler):
    """A file handler that ignores errors of the file, such as a full disk: they must not hide what is logged."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, encoding="utf-8", delay=True)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the file cannot be opened
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the standard library's name
        del record

    def close(self) -> None:
        with suppress(OSError):  # what could not be written until now
            super().close()
