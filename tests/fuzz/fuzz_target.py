"""What a fuzz target is: a function that raises for an input which longshore does not handle as documented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class InputKind(StrEnum):
    """How an input is changed so that it stays nearly valid."""

    JSON = "json"
    TEXT = "text"
    FOLDER = "folder"
    """Files, as :func:`tests.fuzz.folder_text.join_folder` writes them."""


@dataclass(frozen=True, slots=True)
class FuzzTarget:
    """A reader of bytes from outside."""

    name: str
    kind: InputKind
    run: Callable[[bytes], None]
    """Gives the input to the reader.  Returns for what is read or refused as documented; raises for anything else."""
    corpus: Callable[[], list[bytes]]
    """Returns good inputs."""


class FuzzFindingError(AssertionError):
    """The reader returned, but not what its documentation says."""
