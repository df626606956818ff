"""Names of actors that the files of a run spell: who places them and who reads the files agree on them here."""

from __future__ import annotations

EVALUATION_WORKER, EVALUATION_ENGINE = "evaluation-worker", "evaluation-engine"
"""The worker and the engine of an online evaluation; a number follows."""
