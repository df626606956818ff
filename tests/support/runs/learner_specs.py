"""Learners for tests: specs and objectives from flat keywords, whichever section each belongs to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from learner.losses.objective import Objective
from learner.losses.settings import PolicyLossSettings
from learner.settings import LoraSettings, TrainerSettings
from learner.spec import LearnerSpec
from protocol.staleness import StaleTokenPolicy
from protocol.staleness_settings import StalenessSettings


def make_objective(**changes: Any) -> Objective:
    """Return an objective.

    ``shaping``, ``corrections`` and ``kl`` are its sections, all else are fields of the policy loss.
    """
    sections = {name: changes.pop(name) for name in ("shaping", "corrections", "kl") if name in changes}
    return Objective(PolicyLossSettings(**changes), **sections)


def make_spec(
    model_path: str = "unused",
    *,
    max_staleness: int = 4,
    stale_policy: StaleTokenPolicy = StaleTokenPolicy.MASK,
    lora: LoraSettings | None = None,
    **changes: Any,
) -> LearnerSpec:
    """A spec for as many ranks as its layout needs.  Fields of the trainer's section stand beside the spec's own."""
    trainer = {name: changes.pop(name) for name in tuple(changes) if name in TrainerSettings.model_fields}
    trainer.setdefault("ranks", trainer.get("tp", 1) * trainer.get("pp", 1) * trainer.get("cp", 1))
    staleness = StalenessSettings(max_staleness=max_staleness, policy=stale_policy)
    return LearnerSpec(model_path, TrainerSettings(**trainer), lora or LoraSettings(), staleness=staleness, **changes)


def change_spec(spec: LearnerSpec, **changes: Any) -> LearnerSpec:
    """A spec with other values: the spec's own or those of the trainer's section; ranks follow the layout."""
    trainer = {name: changes.pop(name) for name in tuple(changes) if name in TrainerSettings.model_fields}
    values = spec.trainer.model_dump() | trainer
    values["ranks"] = values["tp"] * values["pp"] * values["cp"]
    return replace(spec, trainer=TrainerSettings(**values), **changes)
