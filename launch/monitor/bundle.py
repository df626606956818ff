"""The page's modules as one script, for pages that stand alone: imports go, exports become plain declarations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_STATIC = Path(__file__).parent / "static"


def bundle(names: Sequence[str]) -> str:
    """``names`` of files in ``static``, each after those that it imports."""
    sources = [(_STATIC / name).read_text(encoding="utf-8") for name in names]
    plain = [re.sub(r"^import .*\n", "", source, flags=re.MULTILINE) for source in sources]
    return "\n".join(re.sub(r"^export ", "", source, flags=re.MULTILINE) for source in plain)
