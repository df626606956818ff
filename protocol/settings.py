"""The base of every section, and the one way from a pydantic error to a line that a person can act on.

A field's docstring is its help text.  Unknown keys are errors with a suggestion.  A check across fields says how
to mend it.  Values are immutable.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError

_LARGEST = 2**53 - 1
"""Every reader of JSON gets it exactly."""
PositiveInt = Annotated[int, Field(ge=1, le=_LARGEST)]
CountInt = Annotated[int, Field(ge=0, le=_LARGEST)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
DecayRate = Annotated[float, Field(ge=0, lt=1)]
"""Of a running mean; 1 would never take anything in."""


class ConfigError(UserError):
    """The configuration cannot be used; the message says what to write instead."""


class ConfigSection(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )


def dotted_fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key of a configuration, as ``section.key``."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from dotted_fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def suggest_key(model: type[BaseModel], wrong: str) -> str:
    """Suggest a key for a dotted one that is unknown: the same name in the section of the nearest spelling, else in
    another one, else the nearest spelling in that section, else the nearest anywhere."""
    fields = list(dotted_fields(model))
    sections = list(model.model_fields)
    section, _, leaf = wrong.rpartition(".")
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


def explain_errors(model: type[BaseModel], error: ValidationError, source: str, see_keys: str = "") -> ConfigError:
    """One error for all that pydantic found in ``source``, each with its key and what to do; ``see_keys`` says, where a
    key is unknown, what shows the known ones."""
    problems: list[str] = []
    found = error.errors(include_url=False, include_context=True)
    for item in found:
        key = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            problems.append(f"unknown key '{key}'{suggest_key(model, key)}")
        elif item["type"] == "value_error":
            problems.append(str(item.get("ctx", {}).get("error", item["msg"])))
        else:
            problems.append(f"{key}: {item['msg'][0].lower()}{item['msg'][1:]}, not {item['input']!r}")
    unknown = any(item["type"] == "extra_forbidden" for item in found)
    return ConfigError(f"{source}: {'; also: '.join(problems)}{see_keys if unknown else ''}")
