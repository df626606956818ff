"""Elements that a person would click although they have no role of their own: those with a handler of clicks, and those
over which the cursor becomes a hand.  Pure.

An element whose handler is meant for what is inside it (a list, the whole page) is none of them, unless the cursor says
so; nor is what stands inside a link, a button or a label, which are clicked themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

CURSOR = "cursor"
"""The computed style that a snapshot must have, alone."""
_HAND = "pointer"
_CONTROLS = {"A", "AREA", "BUTTON", "INPUT", "LABEL", "OPTION", "SELECT", "SUMMARY", "TEXTAREA"}
_WHOLE_PAGE = {"HTML", "BODY"}


class _Indices(msgspec.Struct):
    index: list[int] = msgspec.field(default_factory=list[int])


class _Nodes(msgspec.Struct, rename="camel"):
    parent_index: list[int] = msgspec.field(default_factory=list[int])
    node_name: list[int] = msgspec.field(default_factory=list[int])
    backend_node_id: list[int] = msgspec.field(default_factory=list[int])
    is_clickable: _Indices = msgspec.field(default_factory=_Indices)


class _Layout(msgspec.Struct, rename="camel"):
    node_index: list[int] = msgspec.field(default_factory=list[int])
    styles: list[list[int]] = msgspec.field(default_factory=list[list[int]])


class _Document(msgspec.Struct):
    nodes: _Nodes
    layout: _Layout


class PageSnapshot(msgspec.Struct):
    """The answer of DevTools' ``DOMSnapshot.captureSnapshot`` with the computed style :data:`CURSOR`."""

    documents: list[_Document]
    strings: list[str]


def find_clickable(snapshot: PageSnapshot) -> frozenset[int]:
    """Return the backend node ids of these elements, in all frames of a page."""
    return frozenset(node for document in snapshot.documents for node in _of_document(document, snapshot.strings))


def _of_document(document: _Document, strings: list[str]) -> Iterator[int]:
    nodes, layout = document.nodes, document.layout
    names = [strings[name].upper() for name in nodes.node_name]
    hands = {
        node
        for node, styles in zip(layout.node_index, layout.styles, strict=True)
        if any(strings[style] == _HAND for style in styles)
    }
    shown, handling = set(layout.node_index), set(nodes.is_clickable.index)
    in_control, candidates = set[int](), list[int]()
    for node, parent in enumerate(nodes.parent_index):  # a parent stands before its children
        if parent in in_control or (parent >= 0 and names[parent] in _CONTROLS):
            in_control.add(node)
        elif (
            names[node][:1].isalpha()  # an element, and no text, document or ::before
            and names[node] not in _CONTROLS | _WHOLE_PAGE
            and node in shown
            and (node in handling or (node in hands and parent not in hands))
        ):
            candidates.append(node)
    has_usable_inside = set[int]()
    kept = set(candidates)
    for node in range(len(names) - 1, -1, -1):
        if node in kept and node not in hands and node in has_usable_inside:
            kept.remove(node)
        if node in kept or node in has_usable_inside or names[node] in _CONTROLS:
            has_usable_inside.add(nodes.parent_index[node])
    return (nodes.backend_node_id[node] for node in sorted(kept))
