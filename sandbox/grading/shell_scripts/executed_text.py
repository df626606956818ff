"""Leaves out of a shell script what it does not execute: comments, and what it only prints or looks for. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence

from tree_sitter import Node

from sandbox.grading.shell_scripts.nodes import all_nodes, node_text, redirections
from sandbox.grading.shell_scripts.parser import find_commands, parse_tree
from sandbox.grading.shell_scripts.script import UnreadableScriptError

_PRINTERS = frozenset(("echo", "printf"))
_SEARCHERS = frozenset(("grep", "egrep", "fgrep", "rg"))
_OPTION_OR_NUMBER = re.compile(r"-|\d+$")
_SUBSTITUTIONS = frozenset(("command_substitution", "process_substitution"))


def executed_text(script: str) -> str:
    """Return the script without what it does not execute; without whole lines of comments if it cannot be read.

    What it writes to a file or gives to another command stays, since that may be executed."""
    try:
        idle = sorted(_idle_ranges(parse_tree(script)))
    except UnreadableScriptError:
        return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    data, parts, at = script.encode(errors="replace"), list[bytes](), 0
    for start, end in idle:
        if start >= at:
            parts.append(data[at:start])
            at = end
    return b" ".join((*parts, data[at:])).decode(errors="replace")


def _idle_ranges(root: Node) -> Iterator[tuple[int, int]]:
    shown = {each.offset for each in find_commands(root) if each.runs_alone and "1" in each.inherited_outputs}
    for node in all_nodes(root):
        match node.type:
            case "comment":
                yield node.start_byte, node.end_byte
            case "command":
                for words in _idle_words(node, shown):
                    yield from _without_substitutions(words)
            case "redirected_statement":
                for text in _printed_texts(node, shown):
                    yield text.start_byte, text.end_byte
            case _:
                pass


def _idle_words(command: Node, shown: Container[int]) -> Sequence[Node]:
    """Return the parts of a command that it only prints or looks for; ``shown`` has the offsets of the commands that
    print to the script's own output."""
    name = command.child_by_field_name("name")
    program = node_text(name) if name else ""
    if program in _SEARCHERS:
        words = command.children_by_field_name("argument")
        return [word for word in words if not _OPTION_OR_NUMBER.match(node_text(word))][:1]
    return [command] if program in _PRINTERS and command.start_byte in shown else []


def _printed_texts(statement: Node, shown: Container[int]) -> Iterator[Node]:
    """Yield the here-documents that ``cat`` without arguments prints to the script's own output."""
    body = statement.child_by_field_name("body")
    if body is not None and node_text(body).strip() == "cat" and body.start_byte in shown:
        for redirection in redirections(statement):
            yield from (each for each in redirection.children if each.type == "heredoc_body")


def _without_substitutions(words: Node) -> Iterator[tuple[int, int]]:
    """Yield the ranges of words that no substitution in them covers."""
    at = words.start_byte
    waiting = [words]
    while waiting:
        node = waiting.pop()
        if node.type in _SUBSTITUTIONS:
            yield at, node.start_byte
            at = node.end_byte
        else:
            waiting.extend(reversed(node.children))
    yield at, words.end_byte
