"""What the command lines of everything that makes a run share: options that are keys, and which run is meant."""

from __future__ import annotations

import json
from collections.abc import Mapping

from protocol.errors import UserError

NEWEST_RUN = ""
"""``--resume`` without a run id: the newest run."""


def require_nonempty(options: Mapping[str, object]) -> None:
    """Option → value.  Raises UserError for an empty one: from an unset variable of a shell, say, and to go on without
    would be another run than was asked for."""
    for option, value in options.items():
        if value == "" or (isinstance(value, list) and "" in value):
            raise UserError(f"{option} is empty: give it a value, or leave it out")


def run_to_resume(resume: str | None, run_id: str | None) -> str | None:
    """The run to go on with, ``NEWEST`` for the newest one, None for a new run.  Raises UserError where both options
    name one, and not the same."""
    if resume is None or run_id is None:
        return resume
    if resume not in {NEWEST_RUN, run_id}:
        raise UserError(f"--resume {resume} and --run-id {run_id} name two runs: leave one of them out")
    return run_id


def format_overrides(keys: Mapping[str, object]) -> list[str]:
    """``section.key=value`` for each key that has a value."""
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in keys.items() if value is not None]


def format_model_overrides(model: str | None) -> list[str]:
    """``--model FOLDER`` as keys: a model that exists calls tools in its own format, and is not taught the demo's."""
    return (
        []
        if model is None
        else [*format_overrides({"model.path": model}), "warm_start.enabled=false", "agent.tools=true"]
    )
