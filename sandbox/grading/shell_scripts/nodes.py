"""Helpers for tree-sitter's nodes of a shell script.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

REDIRECTIONS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))


def all_nodes(root: Node) -> Iterator[Node]:
    """Yield ``root`` and every node below it."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children)


def node_text(node: Node) -> str:
    """Return the text of a node."""
    return (node.text or b"").decode(errors="replace")


def redirection_operator(redirection: Node) -> str:
    """Return the operator of a redirection, such as ``>&``."""
    return next((node_text(child) for child in redirection.children if child.type != "file_descriptor"), "")


def redirection_destinations(redirection: Node) -> list[Node]:
    """Return a redirection's target, and the command's words that follow it."""
    return [child for child in redirection.named_children if child.type != "file_descriptor"]


def redirections(node: Node) -> list[Node]:
    """Return those children of a node that redirect."""
    return [child for child in node.children if child.type in REDIRECTIONS]
