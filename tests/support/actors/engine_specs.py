"""Engines' specs and versions for tests: a test names only the fields that it is about."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from actors.engines.settings import EngineSettings, EngineSpec

_SPEC_FIELDS = {each.name for each in fields(EngineSpec)}


class Lora(NamedTuple):
    """Adapters as an engine needs to know them; the learner's own settings check more."""

    rank: int
    alpha: float
    projections: tuple[str, ...]


def engine_spec(run_dir: Path, model_path: Path | str = "", **changes: Any) -> EngineSpec:
    """The spec of an engine on a CPU.  ``changes`` are fields of the spec or of its settings."""
    spec = {"name": "e", "context_length": 512} | {key: changes[key] for key in changes if key in _SPEC_FIELDS}
    settings = EngineSettings(**{key: changes[key] for key in changes if key not in _SPEC_FIELDS})
    return EngineSpec(settings=settings, run_dir=run_dir, model_path=str(model_path), **spec)
