"""Values that act as their pickle is loaded."""

import os
from pathlib import Path


class MakesFolder:
    """A value whose pickle makes a folder as it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.folder,)
