"""What a process logs, whoever in it does: a file of JSON lines, each with the ids of what it was about.

A line is ``{"t": unix seconds, "level", "event", "logger", "run", "writer", "node", "step", "group", "rollout", …}``;
step, group and rollout are null where nothing of the kind was at hand.  Code that works on one of them says so once
(:func:`bound`), and all that is logged within, by libraries too, carries it.  What libraries say below a warning is
left out.  Nothing of it goes to standard output, and logging never raises.  Events (:mod:`protocol.events`) say what
happened; this says what a developer wants to know of it, tracebacks above all.
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
    """A record of the standard library's has its own time."""
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
    """The log of a module (``__name__``)."""
    return structlog.stdlib.get_logger(name)


def bind_log_ids(**ids: int | str) -> AbstractContextManager[None]:
    """What is logged within, in this task and in those that it begins, carries ``ids``: step, group, rollout."""
    return _bound(ids)


@contextmanager
def _bound(ids: dict[str, int | str]) -> Generator[None]:
    with bound_contextvars(**ids):
        yield


@dataclass(frozen=True, slots=True)
class ProcessLog:
    """Where one process of a run logs, and whose it is."""

    path: Path
    run: str
    writer: str
    node: str

    def install_handler(self) -> logging.Handler:
        """From now on, until the process ends or the handler is taken away (:meth:`kept`)."""
        handler = _QuietFile(self.path)
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
        """While the body runs."""
        handler = self.install_handler()
        try:
            yield
        finally:
            logging.getLogger().removeHandler(handler)
            handler.close()

    def _line(self, logger: Any, method: str, line: _Line) -> _Line:
        """In the order in which a person reads it, every id in it."""
        del logger, method
        head = {name: line.pop(name, None) for name in ("t", "level", "event", "logger")}
        whose = {"run": self.run, "writer": self.writer, "node": self.node}
        return {**head, **whose, **{name: line.pop(name, None) for name in _IDS}, **line}


def _as_json(logger: Any, method: str, line: _Line) -> str:
    del logger, method
    return orjson.dumps(dict(line), default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class _QuietFile(logging.FileHandler):
    """A log that cannot be written (a full disk) is no concern of whoever logs."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, encoding="utf-8", delay=True)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # where it cannot even be opened
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  its name in the standard library
        del record
