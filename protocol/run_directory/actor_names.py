"""Names of actors as they appear in a run's files, shared by the code that starts them and by readers."""

from __future__ import annotations

EVALUATION_WORKER, EVALUATION_ENGINE = "evaluation-worker", "evaluation-engine"
"""Name prefixes of the workers and engines of online evaluation; a number follows."""
JUDGE_ENGINE = "judge"
"""Name prefix of the engines of a judge that the run serves itself; a number follows."""
