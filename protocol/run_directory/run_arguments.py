"""Types of command arguments that name a run: by its directory, or by its id if it is in the default folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from tyro.conf import Positional

from protocol.cli.arguments import option
from protocol.run_directory.layout import find_folder

RunFolder = Annotated[Path, AfterValidator(find_folder)]
"""A run's directory, or its id."""
RunPath = Positional[Annotated[RunFolder, option("RUN"), Field(description="The run's directory, or its id.")]]
