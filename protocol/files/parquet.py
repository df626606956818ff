"""Reads the rows of a Parquet file, the form of most published data sets, in memory that its author does not set."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import IO, cast

from protocol.files.regular_files import require_regular_file

_DECODER = Path(__file__).with_name("parquet_decoder.py")

Row = dict[str, object]


def read_parquet_rows(path: Path) -> Generator[Row]:
    """Yield each row as JSON would have it: fields that are null are left out, also the nested ones.

    They are decoded in another process (:mod:`.parquet_decoder`, which has the limits), until the iterator is closed.
    Raises ValueError, in one line, if ``path`` cannot be read or a limit is exceeded.
    """
    try:
        require_regular_file(path)
    except OSError as error:
        raise ValueError(str(error)) from error
    command = (sys.executable, "-P", str(_DECODER), str(path))
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as decoder:
        try:
            rows, errors = cast("IO[bytes]", decoder.stdout), cast("IO[bytes]", decoder.stderr)
            with contextlib.suppress(EOFError, pickle.UnpicklingError):  # the second where it was killed
                while True:
                    yield from cast("list[Row]", pickle.load(rows))  # noqa: S301  our own process wrote it
            said = errors.read().decode(errors="replace").splitlines()
            if decoder.wait():
                raise ValueError(said[-1] if said else f"its decoder ended with status {decoder.returncode}")
        finally:
            decoder.kill()
