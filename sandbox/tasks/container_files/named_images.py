"""Finds the images that the engine takes from a registry for a build: those of ``FROM`` and ``from=``.  Pure.

Reads what the engine gets.  A text that the engine may read in another way keeps its ``$``, which no image's name has.
"""

from __future__ import annotations

import re

from sandbox.tasks.container_files.dockerfile import parse_arguments, read_statements
from sandbox.tasks.container_files.variables import BrokenVariableError, expand_variables
from sandbox.tasks.task_containers import ImageBuild

_SOURCE = re.compile(r"[-,=]from=([^\s,]+)", re.IGNORECASE)
_OPTIONS = re.compile(r"[^!-~]*(?:--[!-~]*+[^!-~]*+)+")
_TRIGGER_OPTIONS = re.compile(r"[A-Za-z]+[^!-~]+(?:--[!-~]*+[^!-~]*+)+")
"""Options before the first other word."""
_QUOTES = str.maketrans("", "", "\"'\\`")
_UNCLEAR = re.compile(r"""[\\`]|\$\{?\d|\$\{[^}$"']*["']|[^\S \t]""")
"""Escapes, numbered variables, quotes within variables, and space that separates words for one reader only."""
_NESTED = re.compile(r"\$\{[^}$]*\$")
"""A variable within another, whose quotes may stand anywhere behind it."""


def find_named_images(build: ImageBuild) -> frozenset[str]:
    """Return the names of images that the engine may pull to build the target, but those of one word; with ``$`` where
    only the engine knows the name."""
    text = build.files.get(build.dockerfile, b"").decode(errors="replace")
    variables: dict[str, str] | None = {}
    stages: list[str] = []
    found: list[tuple[int, str]] = []
    for statement in read_statements(text):
        name, arguments = statement.instruction
        if name == "ARG" and not stages:
            variables = _add_arguments(variables, arguments, build)
        elif name == "FROM":
            words = [word for word in arguments.split() if not word.startswith("--")]
            stages.append(words[2].lower() if len(words) > 2 else str(len(stages)))
            found += [(len(stages), _expand(word, variables)) for word in words]
        else:
            match = _TRIGGER_OPTIONS.match if name == "ONBUILD" else _OPTIONS.match
            options = match(arguments.translate(_QUOTES))
            found += [(len(stages), each) for each in _SOURCE.findall(options[0] if options else "")]
    target = build.target.lower()
    last = max((number for number, stage in enumerate(stages, 1) if stage == target), default=len(stages))
    names = {name.translate(_QUOTES) for stage, name in found if stage <= last}
    return frozenset(name for name in names if set(name) & set("/$:"))


def _add_arguments(variables: dict[str, str] | None, arguments: str, build: ImageBuild) -> dict[str, str] | None:
    """Return the variables, changed in place, after an ARG before the first FROM, the only ones that FROM
    knows; None if the engine may have others."""
    defaults = parse_arguments(arguments)
    if variables is None or not defaults or _is_unclear(arguments) or any("$" in key for key in defaults):
        return None
    expanded = {key: None if value is None else _expand(value, variables) for key, value in defaults.items()}
    for key, value in expanded.items():
        given = build.args.get(key, value)
        if given is None:
            variables.pop(key, None)
        else:
            variables[key] = given
    return variables


def _expand(text: str, variables: dict[str, str] | None) -> str:
    """Replace variables; unknown ones by nothing, as the engine does."""
    if variables is None or _is_unclear(text):
        return text
    try:
        return expand_variables(text, variables, empty_is_unset=True).text
    except BrokenVariableError:
        return text


def _is_unclear(text: str) -> bool:
    last_quote = max(text.rfind("'"), text.rfind('"'))
    return bool(_UNCLEAR.search(text) or (last_quote >= 0 and _NESTED.search(text, 0, last_quote)))
