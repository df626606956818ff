"""YAML by libyaml where PyYAML has it: hundreds of task files are read at once."""

from __future__ import annotations

import yaml

try:
    from yaml import CSafeDumper as _Dumper
    from yaml import CSafeLoader as _Loader
except ImportError:  # a PyYAML without libyaml
    from yaml import SafeDumper as _Dumper
    from yaml import SafeLoader as _Loader


class YamlError(ValueError):
    """Not YAML; the message is one line."""


def parse(text: str) -> object:
    """Raises YamlError."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that no calendar has
        raise YamlError(" ".join(str(error).split())) from error


def dump(values: object) -> bytes:
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120).encode()
