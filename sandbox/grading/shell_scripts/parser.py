"""Parses a shell script with tree-sitter. Pure; nothing is expanded: a word is kept as written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from sandbox.grading.shell_scripts.evaluation import evaluated_texts, unquoted_tests
from sandbox.grading.shell_scripts.nodes import REDIRECTIONS, all_nodes, node_text, redirection_destinations
from sandbox.grading.shell_scripts.redirections import opens_descriptor, written_file
from sandbox.grading.shell_scripts.script import ShellCommand, ShellScript, UnreadableScriptError
from sandbox.grading.shell_scripts.surroundings import Surroundings, surroundings_of_children

_BASH = Language(tree_sitter_bash.language())
_SIMPLE = frozenset(("command", "declaration_command", "unset_command", "test_command"))
_ASSIGNMENTS = frozenset(("variable_assignment", "variable_assignments"))
_WORDS = frozenset((
    "ansi_c_string", "arithmetic_expansion", "brace_expression", "command_substitution", "concatenation", "expansion",
    "number", "process_substitution", "raw_string", "simple_expansion", "string", "translated_string", "word",
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
    commands = tuple(find_commands(root))
    nodes = list(all_nodes(root))
    defined = [node for node in root.children if node.type == "function_definition"]
    functions = {
        node_text(name): node.start_byte for node in reversed(defined) if (name := node.child_by_field_name("name"))
    }
    evaluated = tuple(text for node in nodes for text in evaluated_texts(node))
    tested = tuple(text for node in nodes for text in unquoted_tests(node))
    loops = [node.named_children for node in nodes if node.type in ("for_statement", "select_statement")]
    over = tuple((node_text(name), tuple(map(node_text, values)) or ('"$@"',)) for name, *values, _ in loops)
    into = tuple(target for node in nodes if node.type == "file_redirect" for target in written_file(node))
    opened = (*_NAMED_DESCRIPTOR.findall(text), *(node_text(node) for node in nodes if opens_descriptor(node)))
    background = tuple(node_text(node) for node in nodes if node.type in _BESIDE)
    return ShellScript(commands, functions, evaluated, tested, over, into, opened, background)


def find_commands(root: Node) -> Iterator[ShellCommand]:
    """Yield the simple commands of a script's tree.  Raises UnreadableScriptError."""
    return _commands(root, Surroundings())


def _commands(node: Node, around: Surroundings) -> Iterator[ShellCommand]:
    behind = tuple(_behind(node))
    body = node.child_by_field_name("body") if behind else None
    for child, inner in zip(node.children, surroundings_of_children(node, around), strict=True):
        made = _commands(child, inner)
        yield from _with_more(list(made), behind) if child == body else made
    if node.type in _SIMPLE or (node.type in _ASSIGNMENTS and around.parent not in _SIMPLE | _ASSIGNMENTS | _COUNTING):
        yield ShellCommand(
            words=tuple(_words(node)),
            reads_pipe=around.reads_pipe,
            function=around.function,
            when=around.when,
            offset=node.start_byte,
            runs_alone=around.runs_alone,
            has_input=bool(around.has_input),
            input=around.input,
            inherited_outputs=frozenset(of for of in ("1", "2") if not around.redirected[of]),
            is_in_branch=around.is_in_branch,
        )


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
