"""How commands take a run: by its directory, or by its id if it is in the default folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from tyro.conf import Positional

from protocol.cli.arguments import option
from protocol.run_directory.layout import DEFAULT_RUNS_FOLDER


def find_folder(path: Path) -> Path:
    """Return ``path`` if it exists, otherwise the run or trajectory with that id in the default folder of runs."""
    if path.is_absolute() or path.exists() or not path.parts:
        return path
    return DEFAULT_RUNS_FOLDER / path if (DEFAULT_RUNS_FOLDER / path.parts[0]).is_dir() else path


RunFolder = Annotated[Path, AfterValidator(find_folder)]
"""A run's directory, or its id."""
RunPath = Positional[Annotated[RunFolder, option("RUN"), Field(description="The run's directory, or its id.")]]
