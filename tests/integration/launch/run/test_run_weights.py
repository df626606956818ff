"""If this fails, a run whose engines are on another machine than its learner serves other weights than it trains, or
none."""

from __future__ import annotations

import pytest

from tests.support.runs.cluster_runs import MiniRun, MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

SMALL = ("--set", "engine.count=2", "--set", "warm_start.enabled=false", "--set", "evaluation.tasks_per_family=0")


def test_each_version_is_copied_once_to_a_machine_for_all_of_its_engines(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("deltas", "--set", "engine.weight_transfer=delta", *SMALL, "--steps", "2")
    assert run.succeed()["steps"] == 2
    assert_accounting_balances(run.path)
    versions = served_by_both(run)
    copied = run.events("weights.copied")
    assert [event["version"] for event in copied] == versions
    assert [event["base"] for event in copied] == [-1, *versions[:-1]]
    assert not run.events("weights.full_fetch")


@pytest.mark.parametrize(
    "path",
    [
        ("engine.weight_transfer=broadcast", "engine.load_weights_from=disk", "engine.prefix_reuse=version"),
        ("engine.weight_transfer=broadcast", "engine.load_weights_from=tensor", "engine.prefix_reuse=session"),
        ("engine.weight_transfer=direct", "engine.load_weights_from=disk", "engine.prefix_reuse=session"),
    ],
    ids=" ".join,
)
def test_weights_arrive_by_every_path_without_losing_an_episode(
    mini_runs: MiniRuns, path: tuple[str, str, str]
) -> None:
    chosen = [word for key in path for word in ("--set", key)]
    run = mini_runs.start("-".join(key.partition("=")[2] for key in path), *chosen, *SMALL, "--steps", "2")
    assert run.succeed()["steps"] == 2
    assert_accounting_balances(run.path)
    versions = served_by_both(run)
    copied = run.events("weights.copied")
    assert [event["version"] for event in copied] == ([] if "direct" in path[0] else versions)
    assert {event["base"] for event in copied} <= {-1}, "a broadcast is whole"
    assert not run.events("weights.full_fetch")
    assert not run.events("engine.load_failed")


def served_by_both(run: MiniRun) -> list[int]:
    """The versions that were published, whose last one both engines serve."""
    versions = [event["version"] for event in run.events("weights.published")]
    served = {(event["engine"], event["version"]) for event in run.events("engine.loaded")}
    assert len(versions) >= 2
    assert {("engine-0", versions[-1]), ("engine-1", versions[-1])} <= served
    return versions
