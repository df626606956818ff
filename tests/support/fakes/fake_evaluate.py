"""``launch.evaluation.evaluate`` without an evaluation: every attempt passes at once.

``fails.json`` beside the output folders names those that fail (``fail``) or lose attempts (``lose``).
"""

from __future__ import annotations

import json
import sys

from launch.evaluation.evaluation_options import EvaluateArguments
from launch.evaluation.results.evaluation_folder import open_evaluation_folder
from launch.evaluation.standalone.evaluation import build_evaluation
from protocol.cli.arguments import parse_arguments
from protocol.evaluation import AttemptError, AttemptRecord, AttemptStage
from protocol.trajectory import InfraFailure
from tests.support.runs.attempts import make_attempt


def main() -> int:
    evaluation = build_evaluation(parse_arguments(EvaluateArguments, sys.argv[1:], "evaluate"))
    path = evaluation.arguments.folder
    with (path.parent / "calls.txt").open("a") as calls:
        calls.write(f"{path.name}\n")
    fails = path.parent / "fails.json"
    does = json.loads(fails.read_text()).get(path.name, "") if fails.exists() else ""
    if does == "fail":
        sys.stderr.write("error: the server does not come up\n")
        return 1
    with open_evaluation_folder(path, evaluation.spec) as folder:
        for attempt in evaluation.remaining_attempts(folder.records):
            lost = AttemptError(AttemptStage.RESET, InfraFailure.SANDBOX_LOST, "gone")
            record = AttemptRecord(attempt.task, attempt.number, "f", 1.0, failure=lost)
            folder.add_record(record if does == "lose" else make_attempt(attempt.task, number=attempt.number))
    return 0


if __name__ == "__main__":
    sys.exit(main())
