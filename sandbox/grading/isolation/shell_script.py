"""The simple commands of a shell script, for a reader who asks what it starts.  Pure.

Nothing is expanded: a word is as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import dropwhile
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_BASH = Language(tree_sitter_bash.language())
_SIMPLE = frozenset(("command", "declaration_command", "unset_command", "test_command"))
_ASSIGNMENTS = frozenset(("variable_assignment", "variable_assignments"))
_REDIRECTIONS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_WORDS = frozenset((
    "ansi_c_string", "arithmetic_expansion", "brace_expression", "command_substitution", "concatenation", "expansion",
    "number", "process_substitution", "raw_string", "simple_expansion", "string", "translated_string", "word",
))  # fmt: skip
_EXPANSIONS = frozenset(("command_substitution", "expansion", "simple_expansion"))
_COUNTING = frozenset(("c_style_for_statement",))
_BODIES = frozenset(("do_group", "compound_statement"))
_DEEPEST = 200
COMMAND_STARTERS = frozenset(("exec", "command", "time", "timeout"))
ALL_ARGUMENTS = frozenset(("$1", "$@"))
SHELLS = frozenset(("sh", "ash", "bash"))
DECLARING_BUILTINS = frozenset(("declare", "export", "local", "readonly", "typeset"))
"""Builtins that set what their arguments name: PATH too, where these are not written out."""
ASSIGNMENT = re.compile(r"\w+\+?=")
_SHELL_OPTION = re.compile(r"-[eux]+")
_COMPARES = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"))
_MATCHES = frozenset(("=", "==", "!=", "=~"))
"""What is right of them without quotes is a pattern in ``[[``."""
_EXPANSION = re.compile(r"\$[\w{(]")
_OPERATOR = re.compile(r"(?<!\S)-\w+(?!\S)")
_ALL_OF = re.compile(r"\$\{![^}]*(?:[@*]|\[[@*]\])\}")
_PIECE_OF = re.compile(r"\$\{(?:\w+|[@*])(?:\[[^]]*\])?:(?![-=?+])(.*)\}", re.DOTALL)
_BESIDE = frozenset(("&", "process_substitution"))
_INHERITED = re.compile(r"(?:/dev/(?:std\w+|fd|tty)|/proc)\b")
_NAMED_DESCRIPTOR = re.compile(r"(?<!\$)\{\w+\}[<>]")


class UnreadableScriptError(Exception):
    """Only a shell could tell what this is."""


class ExecutionCertainty(Enum):
    """Whether a script that comes to its end has run a command in its own shell, and waited for it."""

    ALWAYS = auto()
    IF_PREVIOUS_SUCCEEDED = auto()
    """Where the one before it succeeded."""
    MAYBE = auto()


class ShellCommand(NamedTuple):
    words: tuple[str, ...]
    """With their quotes, and without redirections."""
    reads_pipe: bool
    """It reads what the command before it prints."""
    function: str
    """The function whose body it is in; empty for none."""
    when: ExecutionCertainty
    offset: int
    """Where it begins in the script, bytes."""
    runs_alone: bool
    """Nothing is joined with it by a pipe, and nothing goes on meanwhile, as far as its function says."""
    has_input: bool
    """It says itself what its standard input is."""
    inherited_outputs: frozenset[str]
    """Of its descriptors 1 and 2 those that lead where the script's own do, as far as its function says."""


class ShellScript(NamedTuple):
    commands: tuple[ShellCommand, ...]
    """Those in substitutions come before the one that they are part of."""
    functions: Mapping[str, int]
    """Those that the script defines whatever happens, and where."""
    arithmetic: tuple[str, ...]
    """What bash takes for arithmetic, in which the value of a variable is an expression again, with commands in it."""
    unquoted_tests: tuple[str, ...]
    """Expansions without quotes in ``[ … ]`` or ``test``, where what they hold may be an operator, and those that
    ``[[ … ]]`` and ``case`` take for a pattern."""
    loops: tuple[tuple[str, tuple[str, ...]], ...]
    """The variable of each, and what it is over: where that is not written, the arguments."""
    written_files: tuple[str, ...]
    """What redirections write to."""
    opened_descriptors: tuple[str, ...]
    """Redirections of other descriptors than a program's three, or that read by those it writes to."""
    background: tuple[str, ...]
    """What runs while the script goes on."""


def unquote(word: str) -> str:
    """Less the quotes around it."""
    return word.replace('"', "").strip("'")


def shell_script_arguments(arguments: Sequence[str]) -> list[str]:
    """The script that a shell is told to run, empty for none, with its arguments."""
    return list(dropwhile(_SHELL_OPTION.fullmatch, arguments)) or [""]


def parse_script(text: str) -> ShellScript:
    """Raises Unreadable."""
    root = Parser(_BASH).parse(text.encode(errors="replace")).root_node
    if root.has_error:
        raise UnreadableScriptError("no shell script, or one that is beyond this reader")
    functions: dict[str, int] = {}
    commands = tuple(_commands(root, "", functions))
    nodes = list(_nodes(root))
    evaluated = tuple(text for node in nodes for text in _evaluated(node))
    tested = tuple(text for node in nodes for text in _tested(node))
    loops = [node.named_children for node in nodes if node.type in ("for_statement", "select_statement")]
    over = tuple((_text(name), tuple(map(_text, values)) or ('"$@"',)) for name, *values, _ in loops)
    into = tuple(target for node in nodes if node.type == "file_redirect" for target in _into(node))
    opened = (*_NAMED_DESCRIPTOR.findall(text), *(_text(node) for node in nodes if _opens(node)))
    beside = tuple(_text(node) for node in nodes if node.type in _BESIDE)
    return ShellScript(commands, functions, evaluated, tested, over, into, opened, beside)


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
        case "array":
            yield from (index for child in node.named_children if (index := _index(_text(child))))
        case "expansion" if text.endswith("@P}") or (text.startswith("${!") and not _ALL_OF.fullmatch(text)):
            yield "$1"  # whatever it is
        case "expansion" if piece := _PIECE_OF.fullmatch(text):
            yield piece[1]
        case _:
            return


def _tested(node: Node) -> Iterator[str]:
    words = _text(node).split(maxsplit=1)
    if (node.type == "test_command" and words[0] == "[") or (node.type == "command" and words[0] == "test"):
        yield from _unquoted(node.named_children)
    elif node.type == "binary_expression" and any(_text(child) in _MATCHES for child in node.children):
        yield from _unquoted(node.children_by_field_name("right"))
    elif node.type == "case_item":
        yield from _unquoted(node.children_by_field_name("value"))


def _unquoted(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        if node.type in _EXPANSIONS or (node.type == "regex" and _EXPANSION.search(_text(node))):
            yield _text(node)
        elif node.type != "string":
            yield from _unquoted(node.named_children)


def _index(element: str) -> str:
    """Of one that says its place in the array: ``[n]=x``."""
    return element[1:].rpartition("]=")[0] if element.startswith("[") else ""


def _commands(node: Node, within: str, functions: dict[str, int], depth: int = 0) -> Iterator[ShellCommand]:
    if depth > _DEEPEST:
        raise UnreadableScriptError("it is nested too deep")
    if node.type == "function_definition" and (name := node.child_by_field_name("name")):
        within = _text(name)
        if node.parent is not None and node.parent.type == "program":
            functions.setdefault(within, node.start_byte)
    behind = tuple(_behind(node))
    for child in node.children:
        made = _commands(child, within, functions, depth + 1)
        yield from _with_more(list(made), behind) if behind and child == node.child_by_field_name("body") else made
    if node.type in _SIMPLE or (node.type in _ASSIGNMENTS and not _is_part(node)):
        words = tuple(_words(node))
        of_program = (_is_alone(node), _is_fed(node), _heard(node))
        yield ShellCommand(words, _is_piped(node), within, _when(node), node.start_byte, *of_program)


def _with_more(commands: Sequence[ShellCommand], words: tuple[str, ...]) -> Iterator[ShellCommand]:
    """The last of them has these words too."""
    if not commands:
        raise UnreadableScriptError("words behind a redirection of nothing")
    yield from commands[:-1]
    yield commands[-1]._replace(words=commands[-1].words + words)


def _behind(statement: Node) -> Iterator[str]:
    """The command's own words among its redirections: ``echo >&2 this``."""
    if statement.type in ("redirected_statement", "heredoc_redirect"):
        for child in statement.named_children:
            if child.type == "file_redirect":
                yield from map(_text, _destinations(child)[1:])
            elif child.type == "heredoc_redirect":
                yield from _behind(child)
            elif statement.type == "heredoc_redirect" and child.type in _WORDS:
                yield _text(child)


def _destinations(redirection: Node) -> list[Node]:
    """Where it leads, and the command's words behind it."""
    return [child for child in redirection.named_children if child.type != "file_descriptor"]


def _into(redirection: Node) -> Iterator[str]:
    """The file that is written, if one is."""
    for target in _destinations(redirection)[:1]:
        if ">" in _operator(redirection) and target.type not in ("number", "process_substitution"):
            yield _text(target)


def _words(node: Node) -> Iterator[str]:
    for child in node.children if node.type in _SIMPLE else [node]:
        if child.type not in _REDIRECTIONS and (text := _text(child)):
            yield text


def _is_part(assignment: Node) -> bool:
    """Whether it stands before a command, in one that declares, or at the head of a loop that counts."""
    return assignment.parent is not None and assignment.parent.type in _SIMPLE | _ASSIGNMENTS | _COUNTING


def _when(node: Node) -> ExecutionCertainty:
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


def _is_piped(node: Node) -> bool:
    """Whether a pipe ends at this command, with its redirections."""
    while node.parent is not None and node.parent.type == "redirected_statement":
        node = node.parent
    before = node.prev_sibling
    return before is not None and before.type in ("|", "|&")


def _is_alone(node: Node) -> bool:
    while (above := node.parent) is not None and node.type != "function_definition":
        behind = (more.type for each in above.children if each.type == "heredoc_redirect" for more in each.children)
        if above.type in ("pipeline", "process_substitution") or "pipeline" in behind:
            return False
        if node.next_sibling is not None and node.next_sibling.type == "&":
            return False
        node = above
    return True


def _is_fed(node: Node) -> bool:
    """All that is said of its standard input is a file, or a text of the script's."""
    given = [child for child in node.children if child.type in _REDIRECTIONS]
    while (above := node.parent) is not None and above.type in ("negated_command", "redirected_statement"):
        given += [child for child in above.children if child.type in _REDIRECTIONS]
        node = above
    return bool(said := [_is_file_or_text(each) for each in given if _reads(each)]) and all(said)


def _heard(node: Node) -> frozenset[str]:
    levels = [node]
    while levels[-1].type not in ("function_definition", "command_substitution", "program"):
        if (above := levels[-1].parent) is None:
            break
        levels.append(above)
    elsewhere = {"1": levels[-1].type == "command_substitution", "2": False}
    for level in reversed(levels):
        for redirection in level.children:
            if redirection.type == "file_redirect":
                _redirect(redirection, elsewhere)
    return frozenset(descriptor for descriptor in ("1", "2") if not elsewhere[descriptor])


def _redirect(redirection: Node, elsewhere: dict[str, bool]) -> None:
    """Descriptor → whether what is written there goes elsewhere than the script's own."""
    operator, descriptor = _operator(redirection), redirection.child_by_field_name("descriptor")
    target = unquote("".join(map(_text, _destinations(redirection)[:1])))
    if operator == ">&" and (target.isdigit() or target == "-"):
        elsewhere[_text(descriptor) if descriptor else "1"] = elsewhere.get(target, target == "-")
    elif ">" in operator:
        both = operator.startswith("&") or operator == ">&"
        told = ("1", "2") if both else (_text(descriptor) if descriptor else "1",)
        elsewhere.update(dict.fromkeys(told, not _INHERITED.match(target)))


def _reads(redirection: Node) -> bool:
    """Whether it is about standard input."""
    descriptor = redirection.child_by_field_name("descriptor")
    return (descriptor is None and "<" in _operator(redirection)) or (
        descriptor is not None and _text(descriptor) == "0"
    )


def _is_file_or_text(redirection: Node) -> bool:
    if redirection.type != "file_redirect":
        return True
    into = _destinations(redirection)[:1]
    return _operator(redirection) == "<" and not any(
        each.type == "process_substitution" or _INHERITED.match(unquote(_text(each))) for each in into
    )


def _opens(node: Node) -> bool:
    descriptor = node.child_by_field_name("descriptor") if node.type in _REDIRECTIONS else None
    return descriptor is not None and (_text(descriptor), "<" in _operator(node)) not in (
        ("0", True), ("1", False), ("2", False)
    )  # fmt: skip


def _operator(redirection: Node) -> str:
    return next((_text(child) for child in redirection.children if child.type != "file_descriptor"), "")


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
