"""Reads where a shell command's standard input and outputs lead. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tree_sitter import Node

from sandbox.grading.shell_scripts.nodes import (
    REDIRECTIONS,
    node_text,
    redirection_destinations,
    redirection_operator,
)
from sandbox.grading.shell_scripts.script import unquote

SCRIPTS_OWN: Mapping[str, bool] = MappingProxyType({"1": False, "2": False})
"""For each descriptor whether it leads elsewhere than the script's own, where nothing is redirected."""
_MOST_BYTES = 2000
"""Maximum length of what is kept of a command's input."""
_INHERITED = re.compile(r"(?:/dev/(?:std\w+|fd|tty)|/proc)\b")


def written_file(redirection: Node) -> Iterator[str]:
    """Yield the file that a redirection writes, if it writes one."""
    for target in redirection_destinations(redirection)[:1]:
        if ">" in redirection_operator(redirection) and target.type not in ("number", "process_substitution"):
            yield node_text(target)


def redirects_input(given: Sequence[Node], outer: bool | None) -> bool | None:
    """Return whether standard input comes from files or texts of the script only, where redirections are added to those
    of a statement around; None if none is of standard input."""
    found = [_is_file_or_text(each) for each in given if _is_input(each)]
    return all(found) and outer is not False if found else outer


def find_input_word(given: Sequence[Node]) -> str | None:
    """Return a word with the text that the last redirection of standard input gives; None if there is none."""
    return next((_input_word(each) for each in reversed(given) if _is_input(each)), None)


def preceding_output(pipeline: Node, stage: Node) -> str:
    """Return a word with what a stage of a pipeline, not its first, reads."""
    end = stage.start_byte - pipeline.start_byte
    before = (pipeline.text or b"")[: min(end, _MOST_BYTES)].decode(errors="replace")
    return f"$({before.rstrip(' |&')})"


def _input_word(redirection: Node) -> str:
    if redirection.type == "heredoc_redirect":
        bodies = (child for child in redirection.named_children if child.type == "heredoc_body")
        return "".join(map(node_text, bodies))[:_MOST_BYTES]
    text = "".join(map(node_text, redirection_destinations(redirection)[:1]))
    if redirection.type == "herestring_redirect":
        return text
    return f"${text[1:]}" if text.startswith("<(") else f"$(< {text})"


def redirect_outputs(node: Node, given: Sequence[Node], outer: Mapping[str, bool]) -> Mapping[str, bool]:
    """Return for each descriptor of a node, with its redirections, whether it leads elsewhere than the script's own, or
    than those of the function or the substitution that the node is; ``outer`` holds for its parent."""
    if node.type in ("function_definition", "command_substitution"):
        outer = {"1": node.type == "command_substitution", "2": False}
    files = [each for each in given if each.type == "file_redirect"]
    if not files:
        return outer
    redirected = dict(outer)
    for each in files:
        _redirect(each, redirected)
    return redirected


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
