"""Parses a shell script with tree-sitter. Pure; nothing is expanded: a word is kept as written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from sandbox.grading.shell_scripts.evaluation import evaluated_texts, unquoted_tests
from sandbox.grading.shell_scripts.nodes import BLOCKS, REDIRECTIONS, all_nodes, node_text, redirection_destinations
from sandbox.grading.shell_scripts.redirections import (
    find_input_word,
    has_own_input,
    inherited_outputs,
    opens_descriptor,
    written_file,
)
from sandbox.grading.shell_scripts.script import ExecutionCertainty, ShellCommand, ShellScript, UnreadableScriptError

_BASH = Language(tree_sitter_bash.language())
_SIMPLE = frozenset(("command", "declaration_command", "unset_command", "test_command"))
_ASSIGNMENTS = frozenset(("variable_assignment", "variable_assignments"))
_WORDS = frozenset((
    "ansi_c_string", "arithmetic_expansion", "brace_expression", "command_substitution", "concatenation", "expansion",
    "number", "process_substitution", "raw_string", "simple_expansion", "string", "translated_string", "word",
))  # fmt: skip
_BRANCHES = frozenset((
    "c_style_for_statement", "case_item", "elif_clause", "else_clause", "for_statement", "if_statement",
    "while_statement",
))  # fmt: skip
_COUNTING = frozenset(("c_style_for_statement",))
_DEEPEST = 200
"""Maximum nesting; a deeper script is refused."""
_BESIDE = frozenset(("&", "process_substitution"))
_NAMED_DESCRIPTOR = re.compile(r"(?<!\$)\{\w+\}[<>]")


def parse_tree(text: str) -> Node:
    """Parse a script to the syntax tree of tree-sitter.  Raises UnreadableScriptError."""
    root = Parser(_BASH).parse(text.encode(errors="replace")).root_node
    if root.has_error:
        raise UnreadableScriptError("the text is not a shell script, or cannot be parsed")
    if _is_too_deep(root):
        raise UnreadableScriptError("it is nested too deep")
    return root


def _is_too_deep(root: Node) -> bool:
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > _DEEPEST:
            return True
        waiting += ((child, depth + 1) for child in node.children)
    return False


def parse_script(text: str) -> ShellScript:
    """Parse a script.  Raises UnreadableScriptError."""
    root = parse_tree(text)
    functions: dict[str, int] = {}
    commands = tuple(_commands(root, "", functions))
    nodes = list(all_nodes(root))
    evaluated = tuple(text for node in nodes for text in evaluated_texts(node))
    tested = tuple(text for node in nodes for text in unquoted_tests(node))
    loops = [node.named_children for node in nodes if node.type in ("for_statement", "select_statement")]
    over = tuple((node_text(name), tuple(map(node_text, values)) or ('"$@"',)) for name, *values, _ in loops)
    into = tuple(target for node in nodes if node.type == "file_redirect" for target in written_file(node))
    opened = (*_NAMED_DESCRIPTOR.findall(text), *(node_text(node) for node in nodes if opens_descriptor(node)))
    background = tuple(node_text(node) for node in nodes if node.type in _BESIDE)
    return ShellScript(commands, functions, evaluated, tested, over, into, opened, background)


def _commands(node: Node, within: str, functions: dict[str, int], *, in_branch: bool = False) -> Iterator[ShellCommand]:
    if node.type == "function_definition" and (name := node.child_by_field_name("name")):
        within, in_branch = node_text(name), False
        if node.parent is not None and node.parent.type == "program":
            functions.setdefault(within, node.start_byte)
    behind = tuple(_behind(node))
    for child, is_branch in zip(node.children, _branches(node), strict=True):
        made = _commands(child, within, functions, in_branch=in_branch or is_branch)
        yield from _with_more(list(made), behind) if behind and child == node.child_by_field_name("body") else made
    if node.type in _SIMPLE or (node.type in _ASSIGNMENTS and not _is_part(node)):
        words = tuple(_words(node))
        of_program = (is_alone(node), has_own_input(node), find_input_word(node), inherited_outputs(node), in_branch)
        yield ShellCommand(words, _is_piped(node), within, _execution_certainty(node), node.start_byte, *of_program)


def _with_more(commands: Sequence[ShellCommand], words: tuple[str, ...]) -> Iterator[ShellCommand]:
    """Append words to the last command."""
    if not commands:
        raise UnreadableScriptError("there are words after a redirection without a command")
    yield from commands[:-1]
    yield commands[-1]._replace(words=commands[-1].words + words)


def _behind(statement: Node) -> Iterator[str]:
    """Yield the command's own words among its redirections: ``echo >&2 this``."""
    if statement.type in ("redirected_statement", "heredoc_redirect"):
        for child in statement.named_children:
            if child.type == "file_redirect":
                yield from map(node_text, redirection_destinations(child)[1:])
            elif child.type == "heredoc_redirect":
                yield from _behind(child)
            elif statement.type == "heredoc_redirect" and child.type in _WORDS:
                yield node_text(child)


def _words(node: Node) -> Iterator[str]:
    for child in node.children if node.type in _SIMPLE else [node]:
        if child.type not in REDIRECTIONS and (text := node_text(child)):
            yield text


def _is_part(assignment: Node) -> bool:
    """Return whether an assignment belongs to a command, a declaration or the head of a counting loop."""
    return assignment.parent is not None and assignment.parent.type in _SIMPLE | _ASSIGNMENTS | _COUNTING


def _execution_certainty(node: Node) -> ExecutionCertainty:
    when = ExecutionCertainty.ALWAYS
    while (above := node.parent) is not None and above.type != "program":
        if above.type == "list" and node != above.children[0]:
            if above.children[1].type != "&&":
                return ExecutionCertainty.MAYBE
            when = ExecutionCertainty.IF_PREVIOUS_SUCCEEDED
        elif above.type not in ("list", "redirected_statement"):
            return ExecutionCertainty.MAYBE
        node = above
    waits = node.next_sibling is None or node.next_sibling.type != "&"
    return when if waits else ExecutionCertainty.MAYBE


def _branches(node: Node) -> Iterator[bool]:
    """Yield for each child of a node whether it runs in some cases only, where the node runs in all."""
    for number, child in enumerate(node.children):
        if node.type == "list":
            yield number > 0 and node.children[1].type == "||"
        else:
            yield node.type in _BRANCHES and child.is_named and node.field_name_for_child(number) != "condition"


def _is_piped(node: Node) -> bool:
    """Return whether a pipe leads into this command."""
    while node.parent is not None and node.parent.type == "redirected_statement":
        node = node.parent
    before = node.prev_sibling
    return before is not None and before.type in ("|", "|&")


def is_alone(node: Node) -> bool:
    """Return whether, within its function, no pipe joins a command to another and nothing runs at the same time."""
    while (above := node.parent) is not None and node.type != "function_definition":
        beside = () if above.type in BLOCKS else above.children
        behind = (more.type for each in beside if each.type == "heredoc_redirect" for more in each.children)
        if above.type in ("pipeline", "process_substitution") or "pipeline" in behind:
            return False
        if node.next_sibling is not None and node.next_sibling.type == "&":
            return False
        node = above
    return True
