"""A page's accessibility tree as indented lines, in which the elements that can be used have numbers.  Pure.

Names, values and texts are JSON strings, so that no page can write a line of its own.  Nodes that mean nothing by
themselves are left out, and so is the text of an element that has it as its name.  What a person would click although
it has no role is ``clickable``, with its text as its name (:mod:`.clickable_nodes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import msgspec
import orjson

_TEXT, _ROOT = "StaticText", "RootWebArea"
_DROPPED = {"InlineTextBox", "LineBreak", "ListMarker"}
_TRANSPARENT = {_ROOT, "none", "generic", "paragraph", "MenuListPopup", "LabelText", "LayoutTable", "LayoutTableRow"}
_USABLE = {
    *("button", "checkbox", "combobox", "link", "listbox", "menuitem", "menuitemcheckbox", "menuitemradio", "option"),
    *("radio", "searchbox", "slider", "spinbutton", "switch", "tab", "textbox", "treeitem", "DisclosureTriangle"),
    *("Date", "DateTime", "InputTime", "ColorWell", "Month", "Week"),
}
_MAX_TEXT = 400
"""Maximum characters of a name, a value or one line of text."""
_MAX_CLICKABLE_NAME = 100
"""Characters of text that name an element without a name of its own."""
_MAX_INDENT = 12


class AccessibleValue(msgspec.Struct, frozen=True):
    """A value as DevTools' ``Accessibility`` domain writes it."""

    value: object = None

    @property
    def text(self) -> str:
        return str(self.value) if isinstance(self.value, (str, int, float)) else ""


class AccessibleProperty(msgspec.Struct):
    """A state of a node, such as ``checked``."""

    name: str
    value: AccessibleValue


_NONE = AccessibleValue()


class AccessibleNode(msgspec.Struct, rename="camel"):
    """A node of the tree, as DevTools' ``Accessibility.getFullAXTree`` lists it."""

    node_id: str
    ignored: bool = False
    role: AccessibleValue = _NONE
    name: AccessibleValue = _NONE
    value: AccessibleValue = _NONE
    properties: list[AccessibleProperty] = msgspec.field(default_factory=list[AccessibleProperty])
    child_ids: list[str] = msgspec.field(default_factory=list[str])
    backend_node_id: int = msgspec.field(default=0, name="backendDOMNodeId")


class AccessibleTree(msgspec.Struct):
    """The nodes of one frame; the first is the root."""

    nodes: list[AccessibleNode]


class PageElement(NamedTuple):
    """An element that the agent can name by its number."""

    number: int
    backend_node_id: int
    role: str
    name: str


@dataclass(slots=True)
class PageOutline:
    """The lines of a page, and its elements in their order."""

    lines: list[str] = field(default_factory=list[str])
    elements: list[PageElement] = field(default_factory=list[PageElement])

    def find(self, number: int) -> PageElement | None:
        return self.elements[number - 1] if 0 < number <= len(self.elements) else None

    def number(self, element: PageElement) -> int:
        """Add an element under the next number, and return that."""
        self.elements.append(element._replace(number=len(self.elements) + 1))
        return len(self.elements)


class _Visit(NamedTuple):
    node: AccessibleNode
    nodes: dict[str, AccessibleNode]
    depth: int
    known: str
    """Name and value of the line above, which need not be said again."""


def outline_page(
    tree: AccessibleTree, frames: Mapping[int, AccessibleTree] | None = None, clickable: frozenset[int] = frozenset()
) -> PageOutline:
    """Return the outline of a page; ``frames`` holds the trees of inner frames by the node of the element that shows
    them, ``clickable`` the nodes of elements that can be clicked whatever their roles."""
    outline = PageOutline()
    unseen = dict(frames or {})
    stack = _root_of(tree, 0)
    while stack:
        visit = stack.pop()
        node, role = visit.node, visit.node.role.text
        if role in _DROPPED:
            continue
        if role == _TEXT:
            if not node.ignored:
                _add_text(outline, visit)
            continue
        name = _plain(node.name.text)
        inner = unseen.pop(node.backend_node_id, None)
        means_nothing = node.ignored or role in _TRANSPARENT
        is_clickable = node.backend_node_id in clickable
        is_usable = is_clickable or (not node.ignored and bool(node.backend_node_id) and _is_usable(node))
        if means_nothing and not is_usable:
            depth, known = visit.depth, visit.known
        else:
            if is_clickable:
                name = name or _inner_text(visit)
                role = "clickable" if means_nothing else role
            depth, known = visit.depth + 1, f"{name}\n{_plain(node.value.text)}"
            number = outline.number(PageElement(0, node.backend_node_id, role, name)) if is_usable else 0
            outline.lines.append(_line(node, role, name, number, visit.depth))
        stack += _root_of(inner, depth) if inner else _children(visit, depth, known)
    return outline


def quote(text: str, most: int = _MAX_TEXT) -> str:
    """Return text of a page as a JSON string, cut to ``most`` characters."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return orjson.dumps(cut.encode("utf-8", "replace").decode()).decode()


def _root_of(tree: AccessibleTree, depth: int) -> list[_Visit]:
    nodes = {each.node_id: each for each in tree.nodes}
    return [_Visit(tree.nodes[0], nodes, depth, "")] if tree.nodes else []


def _children(visit: _Visit, depth: int, known: str) -> list[_Visit]:
    """Take the children that exist, last first; texts that follow each other are one."""
    found = filter(None, (visit.nodes.pop(each, None) for each in visit.node.child_ids))
    shown = (child for child in found if child.role.text not in _DROPPED)
    children: list[AccessibleNode] = []
    for is_text, group in groupby(shown, _is_text):
        neighbours = list(group)
        children += [_join(neighbours)] if is_text else neighbours
    return [_Visit(each, visit.nodes, depth, known) for each in reversed(children)]


def _join(texts: Sequence[AccessibleNode]) -> AccessibleNode:
    name = AccessibleValue(" ".join(each.name.text for each in texts))
    return AccessibleNode(texts[0].node_id, role=texts[0].role, name=name)


def _is_text(node: AccessibleNode) -> bool:
    return node.role.text == _TEXT and not node.ignored


def _add_text(outline: PageOutline, visit: _Visit) -> None:
    text = _plain(visit.node.name.text)
    if text and text not in visit.known:
        indent = _indent(visit.depth)
        outline.lines += (f"{indent}text {quote(text[at : at + _MAX_TEXT])}" for at in range(0, len(text), _MAX_TEXT))


def _is_usable(node: AccessibleNode) -> bool:
    role = node.role.text
    return role in _USABLE or (role != _ROOT and any(each.name == "focusable" for each in node.properties))


def _inner_text(visit: _Visit) -> str:
    """Return the texts and pictures' names inside a node."""
    found, length = list[str](), 0
    stack = [*reversed(visit.node.child_ids)]
    while stack and length <= _MAX_CLICKABLE_NAME:
        if (node := visit.nodes.get(stack.pop())) is None or node.role.text in _DROPPED:
            continue
        if not node.ignored and node.role.text in {_TEXT, "image"}:
            found.append(_plain(node.name.text))
            length += len(found[-1]) + 1
        else:
            stack += reversed(node.child_ids)
    text = " ".join(filter(None, found))
    return text if len(text) <= _MAX_CLICKABLE_NAME else f"{text[:_MAX_CLICKABLE_NAME]}…"


def _line(node: AccessibleNode, role: str, name: str, number: int, depth: int) -> str:
    parts = [f"[{number}]"] if number else []
    parts.append(role)
    if name:
        parts.append(quote(name))
    if value := _plain(node.value.text):
        parts.append(f"= {quote(value)}")
    if states := _states(node):
        parts.append(f"({', '.join(states)})")
    return _indent(depth) + " ".join(parts)


def _states(node: AccessibleNode) -> list[str]:
    is_heading = node.role.text == "heading"
    stated = sorted(node.properties, key=lambda each: each.name == "focused")
    told = (each for each in stated if each.name != "level" or is_heading)
    return [state for each in told if (state := _state(each.name, each.value.text))]


def _state(name: str, value: str) -> str:
    is_set = value.lower() not in {"", "false"}
    match name:
        case "expanded":
            return "expanded" if is_set else "collapsed"
        case "level":
            return f"level {value}"
        case "checked" | "pressed" if value == "mixed":
            return f"partly {name}"
        case "checked":
            return "checked" if is_set else "not checked"
        case "selected" | "disabled" | "required" | "invalid" | "pressed" | "focused" | "readonly" if is_set:
            return name
        case _:
            return ""


def _plain(text: str) -> str:
    """Return text with single spaces."""
    return " ".join(text.split())


def _indent(depth: int) -> str:
    return "  " * min(depth, _MAX_INDENT)
