"""Write docs/config.md: every key of a run's configuration, from the settings of each room.

A key's text is its field's docstring, its type and bounds are the field's own, and a choice is explained by the
docstring of the enum's member.  ``--check`` writes nothing; exit code 1 where the page is not what it would write.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launch.config import RunConfig, SftConfig  # noqa: E402  the checkout is not always installed

PAGE = ROOT / "docs" / "config.md"
HEAD = """\
# Every configuration key

<!-- Made by `make docs` (tools/config_page.py) from the settings of each room: change the docstrings there. -->

A recipe is a TOML file with the keys that differ from the defaults below; `--set section.key=value` on the command line
overrides both. `--dry-run` prints all resolved keys. An unknown key is an error with a suggestion; keys that contradict
each other are refused with a fix.

    longshore cluster demo --set rollout.group_size=4 --set learner.lr=1e-4 --dry-run
"""
SFT_HEAD = """\
## Supervised training

`longshore sft` has its own configuration ([sft.md](sft.md)). These sections and keys are the same as above: {same}. The
others:
"""
NAMES = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path"}
LARGEST = 2**53 - 1
BOUNDS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))


@dataclass(frozen=True, slots=True)
class Key:
    """One row of a section's table."""

    name: str
    type: str
    default: str
    text: str


def main() -> int:
    page = config_page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


def config_page() -> str:
    """Return the whole page."""
    ours = {section: list(keys(model)) for section, model in sections(RunConfig)}
    lines = [HEAD]
    for section, rows in ours.items():
        lines += [f"## {section}", "", table(section, rows), ""]
    same: list[str] = []
    own: list[str] = []
    for section, model in sections(SftConfig):
        known = ours.get(section, [])
        differ = [key for key in keys(model) if key not in known]
        if alike := [key.name for key in keys(model) if key in known]:
            same.append(f"`{section}` ({', '.join(f'`{name}`' for name in alike)})")
        if differ:
            own += [f"### {section} of supervised training", "", table(section, differ), ""]
    lines += [SFT_HEAD.format(same="; ".join(same)), *own]
    return "\n".join(lines).rstrip() + "\n"


def sections(config: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the tables of a recipe by name, in the order of declaration."""
    for name, field in config.model_fields.items():
        model = field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"{config.__name__}.{name} is not a section")
        yield name, model


def keys(section: type[BaseModel]) -> Iterator[Key]:
    """Yield a section's keys.  Raises ValueError for a key without a docstring."""
    for name, field in section.model_fields.items():
        if not field.description:
            raise ValueError(f"{section.__name__}.{name} has no docstring, which is its help text")
        yield Key(name, type_of(field), default_of(field), plain(field.description) + choices(field.annotation))


def type_of(field: FieldInfo) -> str:
    """Return a field's type as text, with its bounds."""
    bounds = [
        f"{sign} {limit:g}"
        for item in field.metadata
        for name, sign in BOUNDS
        if (limit := getattr(item, name, None)) is not None and limit != LARGEST
    ]
    return " ".join([describe_type(field.annotation), ", ".join(bounds)]).strip()


def describe_type(annotation: object) -> str:
    """Return a type in words."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "one of " + ", ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and annotation in NAMES:
        return NAMES[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return describe_type(inner[0])
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{value}`" for value in inner)
    if origin in {typing.Union, types.UnionType}:
        return " or ".join("nothing" if each is type(None) else describe_type(each) for each in inner)
    if origin is tuple:
        kinds = [describe_type(each) for each in inner if each is not Ellipsis]
        return f"list of {kinds[0]}" if Ellipsis in inner else f"[{', '.join(kinds)}]"
    return "table" if origin is dict or isinstance(annotation, type) else str(annotation)


def default_of(field: FieldInfo) -> str:
    """Return the default as TOML writes it; "needed" if there is none."""
    value: object = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "needed"
    return "–" if value is None else f"`{toml(value)}`".replace("|", "\\|")


def toml(value: object) -> str:
    if isinstance(value, Enum):
        return toml(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, Path)):
        return f'"{value}"'
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(toml(each) for each in typing.cast("tuple[object, ...]", value)) + "]"
    return "{}" if value == {} else str(value)


def choices(annotation: object) -> str:
    """Return the docstrings of an enum's members; "" if none has one."""
    if not (isinstance(annotation, type) and issubclass(annotation, Enum)):
        return ""
    found = member_docstrings(annotation)
    said = [f"`{member.value}`: {plain(found[member.name])}" for member in annotation if member.name in found]
    return "<br>" + "<br>".join(said) if said else ""


def member_docstrings(kind: type[Enum]) -> dict[str, str]:
    """Return the docstrings below an enum's members, by member."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    body = typing.cast("ast.ClassDef", tree).body
    return {
        member.targets[0].id: text.value.value
        for member, text in itertools.pairwise(body)
        if isinstance(member, ast.Assign)
        and isinstance(member.targets[0], ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def plain(docstring: str) -> str:
    """Return a docstring as one line of Markdown for a table cell."""
    text = " ".join(docstring.split())
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`").replace("|", "\\|")
    return re.sub(r"(?<![`\w])docs/(\w+)\.md", r"[\1.md](\1.md)", text).replace("<", "&lt;")


def table(section: str, rows: list[Key]) -> str:
    lines = ["| key | type | default | what it is |", "|---|---|---|---|"]
    lines += [f"| `{section}.{row.name}` | {row.type} | {row.default} | {row.text} |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
