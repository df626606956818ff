"""Typed command lines: a pydantic model declares a command's options, and tyro parses the words into it.

tyro splits the words, writes ``--help`` and provides shell completion; pydantic parses every value and checks its
bounds.  A mistake raises a UserError that names the option, like any other error of a command, so ``--json`` reports it
too.
"""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self, TypeVar, Union, cast, get_args

import tyro
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from tyro import _errors as parse_errors  # tyro's only access to parse errors; the version is pinned
from tyro.conf import Positional, UseAppendAction
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from protocol.cli.suggestions import did_you_mean
from protocol.cli.validation_errors import describe_invalid_value
from protocol.errors import UserError
from protocol.integers import MAX_SAFE_INTEGER

_MARKERS = (
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.EnumChoicesFromValues,
    tyro.conf.DisallowNone,
    tyro.conf.OmitSubcommandPrefixes,
    tyro.conf.OmitArgPrefixes,
    tyro.conf.HelptextFromCommentsOff,
)


class CommandArguments(BaseModel):
    """Base of a command's arguments.  The class docstring describes the command; a field's docstring is its help
    text."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )


ArgumentsT = TypeVar("ArgumentsT", bound=CommandArguments)


def option(metavar: str | None = None, *, name: str | None = None, show_default: bool = True) -> Any:
    """Annotate a field with a placeholder for its value, or with a name that Python does not allow for a field.

    The placeholder of a positional argument is written as the usage line shows it: ``[RUN]`` if it can be left out,
    ``RUN ...`` if there may be several.  Pass ``show_default=False`` when the help text already explains the default.
    """
    hint = _describe_default if show_default else ""
    return tyro.conf.arg(name=name, metavar=metavar, help_behavior_hint=hint)


def repeatable(metavar: str, *, name: str | None = None) -> Any:
    """Annotate a field that collects the values of an option which may be given several times."""
    return tyro.conf.arg(name=name, metavar=metavar, help_behavior_hint="(repeatable)")


def _describe_default(default: str) -> str:
    return "" if default in {"None", "False", "", "''"} else f"(default: {default})"


def setting(settings: type[BaseModel], name: str, *, key: str = "") -> Any:
    """Annotate an option that sets the field ``name`` of ``settings``: it has the field's docstring as its help text.

    ``key`` is the configuration key that the option overrides.
    """
    text = settings.model_fields[name].description or ""
    return Field(description=" ".join(text.replace("``", "`").split()), json_schema_extra={"key": key} if key else None)


def comma_separated(metavar: str) -> PrimitiveConstructorSpec[Any]:
    """Annotate an option that takes one comma-separated word; pydantic parses the parts."""
    return PrimitiveConstructorSpec[Any](
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: tuple(part.strip() for part in words[0].split(",")) if words[0] else (),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: ["None" if value is None else ",".join(map(str, value))],
    )


def one_word(metavar: str) -> PrimitiveConstructorSpec[Any]:
    """Annotate an option that takes one word, which a validator of the field parses."""
    return PrimitiveConstructorSpec[Any](
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: words[0],
        is_instance=lambda _value: True,
        str_from_instance=lambda value: [str(value)],
    )


def one_of(choices: Iterable[str]) -> PrimitiveConstructorSpec[str]:
    """Annotate an option that takes one of ``choices``."""
    words = tuple(map(str, choices))
    return PrimitiveConstructorSpec[str](
        nargs=1,
        metavar=f"{{{','.join(words)}}}",
        instance_from_str=lambda given: given[0],
        is_instance=lambda value: value in words,
        str_from_instance=lambda value: [value],
        choices=words,
    )


@dataclass(frozen=True, slots=True)
class ShellWords:
    """Annotate a positional argument with words that a shell completes; others are valid too."""

    choices: tuple[str, ...]


def optional_value(metavar: str) -> PrimitiveConstructorSpec[str]:
    """Annotate an option with an optional value; without it the value is the empty string."""
    return PrimitiveConstructorSpec[str](
        nargs=(0, 1),
        metavar=f"[{metavar}]",
        instance_from_str=lambda words: words[0] if words else "",
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [str(value)],
    )


def environment_default(variable: str, otherwise: Any) -> Any:
    """Take a field's default from an environment variable; it is validated like a typed value."""
    return Field(default_factory=lambda: os.environ.get(variable, otherwise), validate_default=True)


Flag = Annotated[bool, option()]
"""Switch, false unless it is given."""
JsonFlag = Annotated[bool, option(name="json"), Field(description="Print one JSON object on standard output.")]
Count = Annotated[int, option("N"), Field(ge=0, le=MAX_SAFE_INTEGER)]
AtLeastOne = Annotated[int, option("N"), Field(ge=1, le=MAX_SAFE_INTEGER)]
Port = Annotated[int, option("PORT"), Field(ge=0, le=65535)]
Seconds = Annotated[float, option("S"), Field(ge=0)]
Text = Annotated[str, option("TEXT")]


class TypedOverride(str):
    """``section.key=value`` from a command line."""

    __slots__ = ("option",)

    def __new__(cls, text: str, option: str = "") -> Self:
        made = super().__new__(cls, text)
        made.option = option or f"--set {text.partition('=')[0].strip()}"
        return made


class LowerBound(TypedOverride):
    """``section.key=number`` that raises a number below it, and leaves a higher one as it is."""

    __slots__ = ()


Overrides = UseAppendAction[
    Annotated[
        tuple[str, ...],
        repeatable("KEY=VALUE", name="set"),
        AfterValidator(lambda texts: tuple(map(TypedOverride, texts))),
        Field(description="Override one key of the recipe, for example run.steps=12."),
    ]
]
"""``--set``."""
TaskGlobs = UseAppendAction[
    Annotated[
        tuple[str, ...],
        repeatable("GLOB"),
        Field(description="Only tasks whose names match; !GLOB excludes."),
    ]
]
"""``--only`` of recorded tasks."""
TaskPatterns = UseAppendAction[
    Annotated[
        tuple[str, ...],
        repeatable("PATTERN"),
        Field(
            description="Only tasks that match: a GLOB of names, or KEY=GLOB, for example difficulty=easy; !PATTERN "
            "excludes."
        ),
    ]
]
"""``--only`` of tasks in a data set."""

_POSITIONAL = get_args(Positional[str])[1]
_registry = ConstructorRegistry()


@_registry.primitive_rule  # pyright: ignore[reportUnknownMemberType]  tyro leaves its type argument out
def _unread_word(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Pass numbers and paths to pydantic as typed, so that all values are parsed and rejected in one place."""
    kind = cast("type[object]", info.type)  # pyright: ignore[reportUnknownMemberType]  as above
    if kind not in {int, float, Path}:
        return None
    return PrimitiveConstructorSpec[Any](
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [f"{value:g}" if isinstance(value, float) else str(value)],
    )


def parse_arguments(model: type[ArgumentsT], words: Sequence[str], prog: str) -> ArgumentsT:
    """Parse ``words`` into ``model``.  Raises UserError; ``--help`` prints the help on standard output and exits."""
    require_utf8(words)

    chosen = subcommands(model).get(words[0]) if words else None
    command = f"{prog} {words[0]}" if chosen is not None else prog

    def refuse(event: parse_errors.ParseErrorEvent) -> NoReturn:
        raise UserError(f"{_explain(chosen or model, event)}; see {command} --help") from None

    with parse_errors.on_parse_error(refuse), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a default that comes from the environment is text until pydantic has read it
        return tyro.cli(model, args=words, prog=prog, registry=_registry, config=_MARKERS)


def format_help(model: type[CommandArguments], prog: str, words: Sequence[str] = ()) -> str:
    """Return the help text of a command, or of the subcommand that ``words`` name."""
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        tyro.cli(model, args=[*words, "--help"], prog=prog, registry=_registry, config=_MARKERS)
    return text.getvalue()


def format_completion(prog: str, models: Mapping[str, type[CommandArguments]], shell: str) -> str:
    """Return the completion script for ``shell`` of ``prog``, which has ``models`` as subcommands.

    tyro completes no positional arguments: their fixed words are added as if they were subcommands.
    """
    members = tuple(Annotated[model, tyro.conf.subcommand(name)] for name, model in models.items())
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        tyro.cli(
            cast("Any", Union)[members],
            args=["--tyro-print-completion", shell],
            prog=prog,
            registry=_registry,
            config=_MARKERS,
        )
    added = _POSITIONAL_WORDS.format(dict(_positional_words(models)))
    script = re.sub("^COMPLETION_SPEC = .*$", lambda found: found[0] + added, text.getvalue(), flags=re.MULTILINE)
    for theirs, ours in _BASH_FILES.items():
        script = script.replace(theirs, ours)
    return script


_BASH_FILES = {
    'matches+=("$completion")': '[[ -n "$completion" ]] && matches+=("$completion")',
    "complete -F": "complete -o default -F",
}
"""Changes to tyro's script for bash: without a match it completes files instead of an empty word."""
_POSITIONAL_WORDS = """
COMPLETION_SPEC['options'].append({{'flags': ['--version'], 'description': 'print the version', 'type': 'flag'}})
for _verbs, _words in {!r}.items():
    _command = COMPLETION_SPEC
    for _verb in _verbs:
        _command = _command['subcommands'][_verb]
    _command['subcommands'].update(dict.fromkeys(_words, {{**_command, 'subcommands': {{}}}}))
"""
"""Lines after tyro's specification in a completion script, without a character that a shell would expand."""


def _positional_words(
    models: Mapping[str, type[BaseModel]], verbs: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield each command, as its verbs, with the words that its positional arguments can be."""
    for verb, model in models.items():
        positionals = [field.metadata for field in model.model_fields.values() if _POSITIONAL in field.metadata]
        if words := [word for each in positionals for item in each for word in getattr(item, "choices", None) or ()]:
            yield (*verbs, verb), tuple(words)
        yield from _positional_words(subcommands(model), (*verbs, verb))


def require_utf8(words: Sequence[str]) -> None:
    """Raise UserError for a word that is not valid UTF-8: neither records nor JSON can hold surrogate escapes."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{word!a} on the command line is not UTF-8: type it again, or rename the file") from error


def subcommands(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return name → model of a command's subcommands; empty if it has none."""
    members = (get_args(member) for field in model.model_fields.values() for member in get_args(field.annotation))
    return {member[1].name: member[0] for member in members if len(member) > 1 and hasattr(member[1], "prefix_name")}


def option_name(model: type[BaseModel], field: str) -> str:
    """Return a field's spelling on the command line: ``--task-ids``, or the placeholder of a positional argument."""
    metadata = model.model_fields[field].metadata
    config = next((each for each in metadata if hasattr(each, "help_behavior_hint")), None)
    if any(each is _POSITIONAL for each in metadata):
        return _bare(getattr(config, "metavar", None) or field.upper())
    return f"--{(getattr(config, 'name', None) or field).replace('_', '-')}"


def _explain(model: type[BaseModel], event: parse_errors.ParseErrorEvent) -> str:
    """Return one line that explains a parse error."""
    match event:
        case parse_errors.UnrecognizedArgs(tokens=tokens):
            return _explain_unknown(model, tokens)
        case parse_errors.MissingArgs(missing_arguments=missing):
            return f"these arguments are missing: {', '.join(_written(each.arg) for each in missing)}"
        case parse_errors.MissingSubcommand(found_token=found):
            known = subcommands(model)
            hint = did_you_mean(found, known) if found else ""
            return f"{f'there is no command {found!r}' if found else 'a command is missing'}: {', '.join(known)}{hint}"
        case parse_errors.InvalidChoice(argument=argument, value=value, choices=choices):
            hint = did_you_mean(value, choices)
            return f"argument {_written(argument)}: {value!r} is not one of {', '.join(choices)}{hint}"
        case parse_errors.BadValue(argument=argument):
            return f"argument {_written(argument)}: its value is missing"
        case parse_errors.InstantiationFailure(message=message, argument=argument):
            error = sys.exc_info()[1]
            found = error if isinstance(error, ValidationError) else getattr(error, "__cause__", None)
            found = found or getattr(error, "__context__", None)
            if isinstance(found, ValidationError):
                return "; ".join(_explain_values(model, found))
            return f"argument {_written(argument)}: {message}" if argument is not None else message
        case _:
            return f"the command line cannot be read: {type(event).__name__}"


def _explain_unknown(model: type[BaseModel], tokens: Sequence[str]) -> str:
    """Return one line about words that a command has no place for."""
    if inner := subcommands(model):
        if tokens[0].startswith("-"):
            return f"a command is missing before {tokens[0]}: {', '.join(inner)}"
        return f"there is no command {tokens[0]!r}: {', '.join(inner)}{did_you_mean(tokens[0], inner)}"
    options = [word for field in model.model_fields if (word := option_name(model, field)).startswith("--")]
    wrong = next((token for token in tokens if token.startswith("--")), None)
    near = did_you_mean(wrong.partition("=")[0], [*options, "--help"]) if wrong is not None else ""
    return f"unrecognized arguments: {' '.join(tokens)}{near}"


def _explain_values(model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    """Yield one line for each value that pydantic rejects."""
    owner = next((each for each in subcommands(model).values() if each.__name__ == error.title), model)
    for item in error.errors(include_url=False, include_context=True):
        if not item["loc"]:
            yield str(item.get("ctx", {}).get("error", item["msg"]))
            continue
        yield f"argument {option_name(owner, str(item['loc'][0]))}: {describe_invalid_value(item)}"


def _written(argument: Any) -> str:
    """Return the spelling of a tyro argument on the command line."""
    lowered = argument.lowered
    return _bare(str(lowered.metavar)) if argument.is_positional() else "/".join(lowered.name_or_flags)


def _bare(placeholder: str) -> str:
    """Return ``RUN`` for ``[RUN ...]``."""
    return placeholder.strip("[]").removesuffix(" ...")
