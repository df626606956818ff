"""The page's modules as one script, for pages that stand alone.

Each module becomes a function that is called once, after those that it imports, so that names of two modules never
meet.  It knows what our modules are written with: named imports of relative paths, and named exports of functions,
classes and constants.  Imports in a circle have no order and are refused.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from launch.pages.static_files import STATIC_FOLDER

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


def bundle_scripts(entry: str, folder: Path = STATIC_FOLDER) -> str:
    """``entry`` is a file of ``folder``.  Raises ValueError for imports in a circle, OSError for what is not there."""
    order: list[str] = []
    _visit(entry, folder, order, ())
    return "\n".join(_as_function(name, (folder / name).read_text(encoding="utf-8"), order) for name in order)


def _visit(name: str, folder: Path, order: list[str], path: tuple[str, ...]) -> None:
    """Append a module after all that it needs."""
    if name in path:
        raise ValueError(f"modules import each other in a circle: {' → '.join((*path, name))}")
    if name in order:
        return
    source = (folder / name).read_text(encoding="utf-8")
    for _, other in _IMPORT.findall(source):
        _visit(_resolve_import(name, other), folder, order, (*path, name))
    order.append(name)


def _as_function(name: str, source: str, order: list[str]) -> str:
    def taken(match: re.Match[str]) -> str:
        names = " ".join(match[1].split())
        return f"const {{ {names} }} = module{order.index(_resolve_import(name, match[2]))};\n"

    given = ", ".join(name for _, name in _EXPORT.findall(source))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(taken, source))
    return f"const module{order.index(name)} = (() => {{\n{body}\nreturn {{ {given} }};\n}})();"


def _resolve_import(name: str, other: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), other))
