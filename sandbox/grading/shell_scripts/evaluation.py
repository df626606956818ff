"""Finds the texts of a shell script that bash evaluates: arithmetic, operators of ``test``, patterns. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from sandbox.grading.shell_scripts.nodes import all_nodes, node_text

_COMPARES = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"))
_MATCHES = frozenset(("=", "==", "!=", "=~"))
"""Operators whose unquoted right side is a pattern in ``[[``."""
_EXPANSIONS = frozenset(("command_substitution", "expansion", "simple_expansion"))
_EXPANSION = re.compile(r"\$[\w{(]")
_OPERATOR = re.compile(r"(?<!\S)-\w+(?!\S)")
_ALL_OF = re.compile(r"\$\{![^}]*(?:[@*]|\[[@*]\])\}")
_PIECE_OF = re.compile(r"\$\{(?:\w+|[@*])(?:\[[^]]*\])?:(?![-=?+])(.*)\}", re.DOTALL)
_BODIES = frozenset(("do_group", "compound_statement"))


def evaluated_texts(node: Node) -> Iterator[str]:
    """Yield the texts that bash evaluates as arithmetic in this node itself."""
    text = node_text(node)
    match node.type:
        case "arithmetic_expansion":
            yield text
        case "compound_statement" if text.startswith("(("):
            yield text
        case "c_style_for_statement":
            yield from (node_text(child) for child in node.named_children if child.type not in _BODIES)
        case "test_command" if any(
            each.type == "test_operator" and node_text(each) in _COMPARES for each in all_nodes(node)
        ):
            if text.startswith("[[") or "-v" in text:
                yield _OPERATOR.sub(" ", text)
        case "subscript" if (index := text.partition("[")[2]) not in ("@]", "*]"):
            yield index
        case "array":
            yield from (index for child in node.named_children if (index := _index(node_text(child))))
        case "expansion" if text.endswith("@P}") or (text.startswith("${!") and not _ALL_OF.fullmatch(text)):
            yield "$1"  # whatever it is
        case "expansion" if piece := _PIECE_OF.fullmatch(text):
            yield piece[1]
        case _:
            return


def unquoted_tests(node: Node) -> Iterator[str]:
    """Yield the unquoted expansions that this node interprets as operators or patterns."""
    words = node_text(node).split(maxsplit=1)
    if (node.type == "test_command" and words[0] == "[") or (node.type == "command" and words[0] == "test"):
        yield from _unquoted(node.named_children)
    elif node.type == "binary_expression" and any(node_text(child) in _MATCHES for child in node.children):
        yield from _unquoted(node.children_by_field_name("right"))
    elif node.type == "case_item":
        yield from _unquoted(node.children_by_field_name("value"))


def _unquoted(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        if node.type in _EXPANSIONS or (node.type == "regex" and _EXPANSION.search(node_text(node))):
            yield node_text(node)
        elif node.type != "string":
            yield from _unquoted(node.named_children)


def _index(element: str) -> str:
    """Return the index of an array element that states it (``[n]=x``); empty for others."""
    return element[1:].rpartition("]=")[0] if element.startswith("[") else ""
