"""One process for all comparisons of expressions of this one: :mod:`sandbox.grading.math_expression`, started when it
is first needed.  It ends with this process, whose end closes its standard input.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, cast

from protocol.errors import InfraError

_PROGRAM = Path(__file__).with_name("math_expression.py")


class ExpressionProcess:
    """Compares expressions from any thread, one pair at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def expressions_equal(self, expected: str, given: str) -> bool:
        """Block until the answer is there, at most a few seconds.  Raises InfraError if the process has ended; the next
        call starts another."""
        with self._lock:
            process = self._process = self._process or _start()
            requests, answers = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
            try:
                requests.write(f"{json.dumps([expected, given])}\n")
                requests.flush()
                return bool(json.loads(answers.readline()))
            except (BrokenPipeError, json.JSONDecodeError) as error:
                self._process = None
                why = f"{_PROGRAM.name}, which compares answers, ended with {process.wait()}"
                raise InfraError(f"{why}: see its output; `make setup` installs what it imports") from error


EXPRESSIONS = ExpressionProcess()
"""The process of all episodes."""


def _start() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(process.communicate)
    return process
