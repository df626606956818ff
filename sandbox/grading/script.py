"""The simple commands of a shell script, for a reader who asks what it starts.  Pure.

Nothing is expanded: a word is as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_BASH = Language(tree_sitter_bash.language())
_SIMPLE = frozenset(("command", "declaration_command", "unset_command", "test_command"))
_ASSIGNMENTS = frozenset(("variable_assignment", "variable_assignments"))
_REDIRECTIONS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_COUNTING = frozenset(("c_style_for_statement",))
_BODIES = frozenset(("do_group", "compound_statement"))
_DEEPEST = 200
_COMPARES = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"))
_OPERATOR = re.compile(r"(?<!\S)-\w+(?!\S)")
_ALL_OF = re.compile(r"\$\{![^}]*(?:[@*]|\[[@*]\])\}")
_PIECE_OF = re.compile(r"\$\{\w+:(?![-=?+])(.*)\}", re.DOTALL)


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
    evaluated: tuple[str, ...]
    """What bash takes for arithmetic, in which the value of a variable is an expression again, with commands in it."""
    loops: tuple[tuple[str, bool], ...]
    """The variable of each, and whether it is over numbers alone."""


def read_script(text: str) -> Script:
    """Raises Unreadable."""
    root = Parser(_BASH).parse(text.encode(errors="replace")).root_node
    if root.has_error:
        raise Unreadable("no shell script, or one that is beyond this reader")
    functions: set[str] = set()
    commands = tuple(_commands(root, "", functions))
    nodes = list(_nodes(root))
    evaluated = tuple(text for node in nodes for text in _evaluated(node))
    loops = [node.named_children for node in nodes if node.type in ("for_statement", "select_statement")]
    counts = tuple((_text(name), all(value.type == "number" for value in values)) for name, *values, _ in loops)
    return Script(commands, frozenset(functions), evaluated, counts)


def _nodes(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children)


def _evaluated(node: Node) -> Iterator[str]:
    text = _text(node)
    match node.type:
        case "arithmetic_expansion":
            yield text
        case "compound_statement" if text.startswith("(("):
            yield text
        case "c_style_for_statement":
            yield from (_text(child) for child in node.named_children if child.type not in _BODIES)
        case "test_command" if any(each.type == "test_operator" and _text(each) in _COMPARES for each in _nodes(node)):
            if text.startswith("[[") or "-v" in text:
                yield _OPERATOR.sub(" ", text)
        case "subscript" if (index := text.partition("[")[2]) not in ("@]", "*]"):
            yield index
        case "expansion" if text.endswith("@P}") or (text.startswith("${!") and not _ALL_OF.fullmatch(text)):
            yield "$1"  # whatever it is
        case "expansion" if piece := _PIECE_OF.fullmatch(text):
            yield piece[1]
        case _:
            return


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
    """Whether it stands before a command, in one that declares, or at the head of a loop that counts."""
    return assignment.parent is not None and assignment.parent.type in _SIMPLE | _ASSIGNMENTS | _COUNTING


def _is_piped(node: Node) -> bool:
    """Whether a pipe ends at this command, with its redirections."""
    while node.parent is not None and node.parent.type == "redirected_statement":
        node = node.parent
    before = node.prev_sibling
    return before is not None and before.type in ("|", "|&")


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
