"""Finds, from a script's root to its commands, what the statements around a command tell of it. Pure.

tree-sitter looks for a node's parent and siblings from the root on, so that asking each command for its own would take
the square of a script's length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tree_sitter import Node

from sandbox.grading.shell_scripts.nodes import node_text, redirections
from sandbox.grading.shell_scripts.redirections import (
    SCRIPTS_OWN,
    find_input_word,
    preceding_output,
    redirect_outputs,
    redirects_input,
)
from sandbox.grading.shell_scripts.script import ExecutionCertainty

_BRANCHES = frozenset((
    "c_style_for_statement", "case_item", "elif_clause", "else_clause", "for_statement", "if_statement",
    "while_statement",
))  # fmt: skip
_PIPES = frozenset(("|", "|&"))


class Surroundings(NamedTuple):
    """What is known of a node: it holds for all commands of the node, unless a node between says otherwise."""

    parent: str = ""
    """Type of the node's parent; empty for the root."""
    function: str = ""
    is_in_branch: bool = False
    runs_alone: bool = True
    reads_pipe: bool = False
    when: ExecutionCertainty = ExecutionCertainty.ALWAYS
    has_input: bool | None = None
    """None where no redirection sets standard input."""
    input: str = ""
    redirected: Mapping[str, bool] = SCRIPTS_OWN
    """For each descriptor whether it leads elsewhere than the script's own."""


def surroundings_of_children(node: Node, around: Surroundings) -> Iterator[Surroundings]:
    """Yield the surroundings of each of a node's children."""
    beside, children = redirections(node), node.children
    if node.type == "function_definition" and (name := node.child_by_field_name("name")):
        around = around._replace(function=node_text(name), is_in_branch=False)
    alone = _keeps_alone(node, beside) and (around.runs_alone or node.type == "function_definition")
    given = find_input_word(beside) if node.type in ("function_definition", "redirected_statement") else None
    types = ["", *(child.type for child in children), ""]
    for number, (child, is_branch) in enumerate(zip(children, _branches(node), strict=True)):
        before, after, own = types[number], types[number + 2], redirections(child)
        yield Surroundings(
            node.type,
            around.function,
            around.is_in_branch or is_branch,
            alone and after != "&",
            around.reads_pipe if node.type == "redirected_statement" else before in _PIPES,
            _certainty(node, number, around.when, waits=after != "&"),
            redirects_input(
                own,
                around.has_input if node.type in ("negated_command", "redirected_statement") else None,
            ),
            _input(node, child, given if given is not None else find_input_word(own), around.input),
            redirect_outputs(child, own, around.redirected),
        )


def _keeps_alone(node: Node, beside: Sequence[Node]) -> bool:
    """Return whether a node runs nothing beside one of its children for what it is."""
    behind = (more.type for each in beside if each.type == "heredoc_redirect" for more in each.children)
    return node.type not in ("pipeline", "process_substitution") and "pipeline" not in behind


def _branches(node: Node) -> Iterator[bool]:
    """Yield for each child of a node whether it runs in some cases only, where the node runs in all."""
    if node.type == "list":
        yield from (number > 0 and node.children[1].type == "||" for number in range(len(node.children)))
    else:
        conditions = {child.id for child in node.children_by_field_name("condition")}
        for child in node.children:
            yield node.type in _BRANCHES and child.is_named and child.id not in conditions


def _certainty(node: Node, number: int, when: ExecutionCertainty, *, waits: bool) -> ExecutionCertainty:
    """Return the certainty that a node's child runs."""
    if node.type == "program":
        return ExecutionCertainty.ALWAYS if waits else ExecutionCertainty.MAYBE
    if node.type == "redirected_statement" or (node.type == "list" and number == 0):
        return when
    if node.type == "list" and node.children[1].type == "&&" and when is not ExecutionCertainty.MAYBE:
        return ExecutionCertainty.IF_PREVIOUS_SUCCEEDED
    return ExecutionCertainty.MAYBE


def _input(node: Node, child: Node, given: str | None, outer: str) -> str:
    """Return what a node's child reads; ``given``: the word that redirections of one of them give it."""
    if child.type in ("function_definition", "command_substitution"):
        return ""
    if given is not None:
        return given
    return preceding_output(node, child) if node.type == "pipeline" and child.start_byte > node.start_byte else outer
