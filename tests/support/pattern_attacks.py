"""Finds the product's regular expressions, and for each the repeated texts that may hold it longest."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from re import _compiler, _parser
from typing import Any

ROOMS = ("protocol", "actors", "sandbox", "launch", "learner")
_FLAGS_AT = {"compile": 1, "search": 2, "match": 2, "fullmatch": 2, "findall": 2, "finditer": 2}
_FLAGS_AT |= {"split": 3, "sub": 4, "subn": 4}
"""The functions of :mod:`re` that take a pattern, with the position of their flags."""
_PASSED_ON = {"_KIMI_ID": "fullmatch", "_NUMBER": "fullmatch", "_WORD": "fullmatch"}
"""Patterns that are handed to a function, which uses them so."""
_COMMON = "a0A \n\t_-/.:=\"'\\$(["
_MOST_ATTACKS = 400
_BODIES = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


@dataclass(frozen=True, slots=True)
class UsedPattern:
    """A pattern, and how it is used: by ``match`` or ``fullmatch`` it is tried at one place of the text only."""

    place: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]

    def read(self, text: str) -> None:
        """Use the pattern as the product does."""
        given: Any = text.encode("utf-8") if isinstance(self.pattern.pattern, bytes) else text
        for method in self.methods:
            if method in ("search", "match", "fullmatch"):
                getattr(self.pattern, method)(given)
            else:
                self.pattern.sub(given[:0], given)


@dataclass(frozen=True, slots=True)
class PatternAttack:
    """A text whose middle is repeated."""

    before: str
    repeated: str
    after: str

    def text(self, size: int) -> str:
        """Return the text with a middle of about ``size`` characters."""
        return self.before + self.repeated * max(1, size // len(self.repeated)) + self.after


def find_patterns(root: Path) -> tuple[list[UsedPattern], list[str]]:
    """Return the patterns of all modules, and the places of those that are put together only when they are used."""
    trees = {path: ast.parse(path.read_text()) for room in ROOMS for path in sorted((root / room).rglob("*.py"))}
    trees = {path: tree for path, tree in trees.items() if "longshore_bench" not in path.parts}
    found: list[UsedPattern] = []
    unknown: list[str] = []
    for path, tree in trees.items():
        calls = [(node, owner) for node, owner in _calls_of_re(tree)]
        if not calls:
            continue
        relative = path.relative_to(root)
        names = vars(importlib.import_module(".".join(relative.with_suffix("").parts).removesuffix(".__init__")))
        for call, assigned in calls:
            function = call.func.attr
            place = f"{relative}: {ast.unparse(call.args[0])}"
            try:
                pattern = re.compile(*_evaluate(call, _FLAGS_AT[function], names))
            except NameError:
                unknown.append(place)
                continue
            users = [tree] if assigned.startswith("_") else trees.values()
            methods = {each for user in users for each in _methods_of(assigned, user)}
            if function != "compile":
                methods = {function}
            found.append(UsedPattern(place, pattern, frozenset(methods or {_PASSED_ON.get(assigned, "search")})))
    return found, unknown


def _calls_of_re(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call of :mod:`re` with a pattern, and the name that its result alone is given."""
    names = {
        id(value): target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target, value in _pairs(node)
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("re"), attr=function)) if function in _FLAGS_AT:
                yield node, names.get(id(node), "")
            case _:
                pass


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Tuple(names)], value=ast.Tuple(values)):
            yield from zip(names, values, strict=False)
        case _:
            yield node.targets[0], node.value


def _methods_of(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield the methods of a pattern of this name that a module uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(found), attr=method) if found == name and method in _FLAGS_AT:
                yield method
            case _:
                pass


def _evaluate(call: ast.Call, flags_at: int, names: dict[str, Any]) -> list[Any]:
    """Return the pattern and the flags of a call, as its module's own names give them."""
    flags = [each.value for each in call.keywords if each.arg == "flags"] + call.args[flags_at : flags_at + 1]
    return [eval(ast.unparse(each), dict(names)) for each in (call.args[0], *flags)]  # noqa: S307  the product's own text


def find_attacks(pattern: re.Pattern[Any]) -> list[PatternAttack]:
    """Return texts that repeat what parts of the pattern match, which then do not go on as it asks."""
    source: Any = pattern.pattern
    parsed = _parser.parse(source, pattern.flags & ~re.DEBUG)
    sampler = _Sampler(parsed, pattern.flags)
    ends = ("\x00", "\n\x00!", "", f"{sampler.alphabet[:40]}\x00")
    attacks = (
        PatternAttack(before, repeated, after)
        for before, repeated in dict.fromkeys(_parts(sampler, parsed))
        for after in ends
    )
    return list(islice(attacks, _MOST_ATTACKS))


class _Sampler:
    """Writes texts that parts of a parsed pattern match."""

    def __init__(self, parsed: Any, flags: int) -> None:
        self._parsed, self._flags = parsed, flags
        self.alphabet = "".join(dict.fromkeys([*_characters(parsed), *_COMMON]))

    def sample(self, items: Sequence[Any], turn: int = 0) -> str:
        """Return one text, with other characters and branches for each ``turn``."""
        return "".join(self._sample_item(item, turn) for item in items)

    def _sample_item(self, item: Any, turn: int) -> str:
        name, value = str(item[0]), item[1]
        if name == "LITERAL":
            return chr(value)
        if name in ("IN", "ANY", "NOT_LITERAL", "CATEGORY"):
            fitting = self.fitting(item)
            return fitting[turn % len(fitting)] if fitting else ""
        if name in _BODIES:
            return self.sample(value[2], turn) * max(1, min(value[0], 3))
        if name == "BRANCH":
            return self.sample(value[1][turn % len(value[1])], turn)
        bodies = _bodies(item)
        return "" if name in ("ASSERT", "ASSERT_NOT") or not bodies else self.sample(bodies[0], turn)

    def fitting(self, item: Any) -> str:
        """Return the characters of the alphabet that one item matches."""
        one = _compiler.compile(_parser.SubPattern(self._parsed.state, [item]), self._flags & ~re.DEBUG)
        as_bytes = isinstance(self._parsed.state.str, bytes)
        return "".join(each for each in self.alphabet if one.fullmatch(each.encode("latin-1") if as_bytes else each))


def _bodies(item: Any) -> list[Any]:
    """Return the sequences within an item."""
    name, value = str(item[0]), item[1]
    match name:
        case "SUBPATTERN":
            return [value[3]]
        case "ATOMIC_GROUP":
            return [value]
        case "BRANCH":
            return list(value[1])
        case "ASSERT" | "ASSERT_NOT":
            return [value[1]]
        case "GROUPREF_EXISTS":
            return [each for each in value[1:] if each is not None]
        case _:
            return [value[2]] if name in _BODIES else []


def _characters(items: Any) -> Iterator[str]:
    """Yield the characters that a sequence names."""
    for item in items:
        name, value = str(item[0]), item[1]
        if name in ("LITERAL", "NOT_LITERAL"):
            yield chr(value)
        elif name == "IN":
            yield from _characters(value)
        elif name == "RANGE":
            yield from (chr(value[0]), chr(value[1]))
        for body in _bodies(item):
            yield from _characters(body)


def _parts(sampler: _Sampler, items: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield what stands before parts of a sequence, and a text that the part matches: characters, then neighbours."""
    units = _units(items)
    for each in sampler.alphabet[:40]:
        if not before:
            yield "", each
    for start in range(len(units)):
        stands = before + sampler.sample(_join(units[:start]))
        for end in range(start + 1, min(len(units), start + 4) + 1):
            for turn in range(3):
                if repeated := sampler.sample(_join(units[start:end]), turn):
                    yield stands, repeated
                    yield "", repeated
        for item in units[start]:
            for body in _bodies(item):
                yield from _parts(sampler, body, stands)


def _units(items: Any) -> list[list[Any]]:
    """Return the items of a sequence, literals that follow each other as one."""
    units: list[list[Any]] = []
    for item in items:
        if str(item[0]) == "LITERAL" and units and str(units[-1][-1][0]) == "LITERAL":
            units[-1].append(item)
        else:
            units.append([item])
    return units


def _join(units: list[list[Any]]) -> list[Any]:
    return [item for unit in units for item in unit]
