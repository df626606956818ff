"""Base of every configuration section, and the translation of pydantic errors into one actionable line.

A field's docstring is its help text.  Unknown keys are errors with a suggestion.  A check across fields says how to fix
the error.  Values are immutable.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from protocol.cli.suggestions import did_you_mean
from protocol.cli.validation_errors import describe_invalid_value
from protocol.errors import UserError
from protocol.integers import MAX_SAFE_INTEGER

PositiveInt = Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER)]
CountInt = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
DecayRate = Annotated[float, Field(ge=0, lt=1)]
"""Decay of a running mean; with 1 it would never change."""


def split_commas(text: str) -> tuple[str, ...]:
    """Return the parts of a text between commas, without empty ones."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


CommaList = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: split_commas(given) if isinstance(given, str) else given)
]
"""Several texts, given as a list or as one text with commas."""


class ConfigError(UserError):
    """The configuration is invalid; the message says what to write instead."""


class ConfigSection(BaseModel):
    refused_keys: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Why a configuration has no key or section of this name, for names that other trainers have."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )


def dotted_fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every key of a configuration as ``section.key``."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from dotted_fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def suggest_key(model: type[ConfigSection], wrong: str) -> str:
    """Return a suggestion for an unknown dotted key, or why the configuration has none.

    The suggestion is the same name in the section with the nearest spelling, else in another section, else the nearest
    name in that section, else the nearest anywhere.
    """
    fields = list(dotted_fields(model))
    sections = list(model.model_fields)
    section, _, leaf = wrong.rpartition(".")
    if leaf in model.refused_keys:
        return f": {model.refused_keys[leaf]}"
    if wrong in sections:
        return f": it is a section, with keys as '{next(known for known in fields if known.startswith(wrong))}'"
    if not section:
        return did_you_mean(wrong, sections)
    if section not in sections:
        near = difflib.get_close_matches(section, sections, n=1)
        section = near[0] if near else section
    same = [known for known in fields if known.rpartition(".")[2] == leaf]
    if same:
        return f"; did you mean '{min(same, key=lambda known: known.rpartition('.')[0] != section)}'?"
    inside = [known for known in fields if known.startswith(f"{section}.")]
    return did_you_mean(f"{section}.{leaf}", inside) or did_you_mean(wrong, fields)


def explain_errors(
    model: type[ConfigSection],
    error: ValidationError,
    source: str,
    see_keys: str = "",
    options: Mapping[str, str] = MappingProxyType({}),
) -> ConfigError:
    """Return one error for all problems that pydantic found in ``source``, each with its key and a fix.

    ``see_keys`` is appended if a key is unknown; it names a command that lists the known keys.  ``options`` has the
    option, ``--nodes``, of each key that the command line has set: it is named instead of the key, and of the source if
    all problems are of options.
    """
    problems: list[str] = []
    found = error.errors(include_url=False, include_context=True)
    only_typed = True
    for item in found:
        key = ".".join(str(part) for part in item["loc"])
        typed = options.get(".".join(map(str, item["loc"][:2])))
        only_typed = only_typed and typed is not None
        if item["type"] == "extra_forbidden":
            problems.append(f"unknown key '{key}'{suggest_key(model, key)}")
        elif item["type"] == "value_error":
            problems.append(str(item.get("ctx", {}).get("error", item["msg"])))
        else:
            problems.append(f"{typed or key}: {describe_invalid_value(item)}")
    unknown = any(item["type"] == "extra_forbidden" for item in found)
    where = "" if only_typed else f"{source}: "
    return ConfigError(f"{where}{'; also: '.join(problems)}{see_keys if unknown else ''}")
