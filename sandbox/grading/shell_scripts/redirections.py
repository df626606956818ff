"""Reads where a shell command's standard input and outputs lead. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from sandbox.grading.shell_scripts.nodes import (
    BLOCKS,
    REDIRECTIONS,
    node_text,
    redirection_destinations,
    redirection_operator,
)
from sandbox.grading.shell_scripts.script import unquote

_REDIRECTED = frozenset(("function_definition", "redirected_statement"))
_MOST_BYTES = 2000
"""Maximum length of what is kept of a command's input."""
_INHERITED = re.compile(r"(?:/dev/(?:std\w+|fd|tty)|/proc)\b")


def written_file(redirection: Node) -> Iterator[str]:
    """Yield the file that a redirection writes, if it writes one."""
    for target in redirection_destinations(redirection)[:1]:
        if ">" in redirection_operator(redirection) and target.type not in ("number", "process_substitution"):
            yield node_text(target)


def has_own_input(node: Node) -> bool:
    """Return whether its standard input is redirected, and only from files or texts of the script."""
    given = [child for child in node.children if child.type in REDIRECTIONS]
    while (above := node.parent) is not None and above.type in ("negated_command", "redirected_statement"):
        given += [child for child in above.children if child.type in REDIRECTIONS]
        node = above
    return bool(found := [_is_file_or_text(each) for each in given if _is_input(each)]) and all(found)


def find_input_word(node: Node) -> str:
    """Return :attr:`~sandbox.grading.shell_scripts.script.ShellCommand.input` of a command."""
    while (above := node.parent) is not None and node.type not in ("function_definition", "command_substitution"):
        beside = (*node.children, *(above.children if above.type in _REDIRECTED else ()))
        if given := [child for child in beside if child.type in REDIRECTIONS and _is_input(child)]:
            return _input_word(given[-1])
        if above.type == "pipeline" and node.prev_sibling is not None:
            before = (above.text or b"")[: node.start_byte - above.start_byte][:_MOST_BYTES].decode(errors="replace")
            return f"$({before.rstrip(' |&')})"
        node = above
    return ""


def _input_word(redirection: Node) -> str:
    if redirection.type == "heredoc_redirect":
        bodies = (child for child in redirection.named_children if child.type == "heredoc_body")
        return "".join(map(node_text, bodies))[:_MOST_BYTES]
    text = "".join(map(node_text, redirection_destinations(redirection)[:1]))
    if redirection.type == "herestring_redirect":
        return text
    return f"${text[1:]}" if text.startswith("<(") else f"$(< {text})"


def inherited_outputs(node: Node) -> frozenset[str]:
    """Return those of descriptors 1 and 2 that lead to the script's own."""
    levels = [node]
    while levels[-1].type not in ("function_definition", "command_substitution", "program"):
        if (above := levels[-1].parent) is None:
            break
        levels.append(above)
    redirected = {"1": levels[-1].type == "command_substitution", "2": False}
    for level in (each for each in reversed(levels) if each.type not in BLOCKS):
        for redirection in level.children:
            if redirection.type == "file_redirect":
                _redirect(redirection, redirected)
    return frozenset(descriptor for descriptor in ("1", "2") if not redirected[descriptor])


def _redirect(redirection: Node, redirected: dict[str, bool]) -> None:
    """Update, for each descriptor, whether it leads elsewhere than the script's own."""
    operator, descriptor = redirection_operator(redirection), redirection.child_by_field_name("descriptor")
    target = unquote("".join(map(node_text, redirection_destinations(redirection)[:1])))
    if operator == ">&" and (target.isdigit() or target == "-"):
        redirected[node_text(descriptor) if descriptor else "1"] = redirected.get(target, target == "-")
    elif ">" in operator:
        both = operator.startswith("&") or operator == ">&"
        changed = ("1", "2") if both else (node_text(descriptor) if descriptor else "1",)
        redirected.update(dict.fromkeys(changed, not _INHERITED.match(target)))


def _is_input(redirection: Node) -> bool:
    """Return whether the redirection is of standard input."""
    descriptor = redirection.child_by_field_name("descriptor")
    return (descriptor is None and "<" in redirection_operator(redirection)) or (
        descriptor is not None and node_text(descriptor) == "0"
    )


def _is_file_or_text(redirection: Node) -> bool:
    if redirection.type != "file_redirect":
        return True
    into = redirection_destinations(redirection)[:1]
    return redirection_operator(redirection) == "<" and not any(
        each.type == "process_substitution" or _INHERITED.match(unquote(node_text(each))) for each in into
    )


def opens_descriptor(node: Node) -> bool:
    """Return whether the node opens a descriptor other than 0 for reading or 1 and 2 for writing."""
    descriptor = node.child_by_field_name("descriptor") if node.type in REDIRECTIONS else None
    return descriptor is not None and (node_text(descriptor), "<" in redirection_operator(node)) not in (
        ("0", True),
        ("1", False),
        ("2", False),
    )
