"""The simple commands of a shell script, for a reader who asks what it starts.  Pure.

Nothing is expanded: a word is as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_BASH = Language(tree_sitter_bash.language())
_SIMPLE = frozenset(("command", "declaration_command", "unset_command", "test_command"))
_ASSIGNMENTS = frozenset(("variable_assignment", "variable_assignments"))
_REDIRECTIONS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_DEEPEST = 200


class Unreadable(Exception):
    """Only a shell could tell what this is."""


class Command(NamedTuple):
    words: tuple[str, ...]
    """With their quotes; redirections are left out."""
    piped: bool
    """It reads what the command before it prints."""
    within: str
    """The function whose body it is in; empty for none."""


class Script(NamedTuple):
    commands: tuple[Command, ...]
    """Those in substitutions come before the one that they are part of."""
    functions: frozenset[str]


def read_script(text: str) -> Script:
    """Raises Unreadable."""
    root = Parser(_BASH).parse(text.encode(errors="replace")).root_node
    if root.has_error:
        raise Unreadable("no shell script, or one that is beyond this reader")
    functions: set[str] = set()
    return Script(tuple(_commands(root, "", functions)), frozenset(functions))


def _commands(node: Node, within: str, functions: set[str], depth: int = 0) -> Iterator[Command]:
    if depth > _DEEPEST:
        raise Unreadable("it is nested too deep")
    if node.type == "function_definition" and (name := node.child_by_field_name("name")):
        within = _text(name)
        functions.add(within)
    for child in node.children:
        yield from _commands(child, within, functions, depth + 1)
    if node.type in _SIMPLE or (node.type in _ASSIGNMENTS and not _is_part(node)):
        yield Command(tuple(_words(node)), _is_piped(node), within)


def _words(node: Node) -> Iterator[str]:
    for child in node.children if node.type in _SIMPLE else [node]:
        if child.type not in _REDIRECTIONS and (text := _text(child)):
            yield text


def _is_part(assignment: Node) -> bool:
    """Whether it stands before a command, or in one that declares."""
    return assignment.parent is not None and assignment.parent.type in _SIMPLE | _ASSIGNMENTS


def _is_piped(node: Node) -> bool:
    """Whether a pipe ends at this command, with its redirections."""
    while node.parent is not None and node.parent.type == "redirected_statement":
        node = node.parent
    before = node.prev_sibling
    return before is not None and before.type in ("|", "|&")


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
