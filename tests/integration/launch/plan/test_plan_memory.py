"""If this fails, a model is planned onto a device that has no room for it, or is kept from one that has."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from launch.bench.isolated_process import isolate
from launch.bench.learner.longshore_step import LongshoreStep
from launch.bench.learner.workload import TEN_MILLION, LearnerWorkload, build_workload_model
from launch.bench.process_memory import peak_bytes
from launch.config import load_recipe
from launch.plan.memory import learner_memory
from learner.models.qwen import read_qwen_config
from learner.settings import Recompute
from tests.support.runs.learner_specs import make_spec

pytestmark = pytest.mark.slow

WORK = LearnerWorkload(TEN_MILLION, (1024,) * 4, all_sampled=True)
"""One pass, of which activations and logits are nearly all."""


@pytest.mark.parametrize("recompute", Recompute)
def test_a_rank_uses_as_much_memory_as_its_plan_says(recompute: Recompute, tmp_path: Path) -> None:
    """A process on a CPU, by what it grew from before its first step to the most that it had."""
    build_workload_model(WORK, tmp_path)
    spec = make_spec(str(tmp_path), recompute=recompute, micro_batch_tokens=WORK.tokens)
    with isolate(partial(LongshoreStep, spec)) as made:
        before = made.call(peak)
        for _ in range(2):  # the second has Adam's moments
            made.call(partial(LongshoreStep.take_step, work=WORK))
        grown = made.call(peak) - before
    values = [f"model.path={tmp_path}", "warm_start.enabled=false", f"learner.recompute={recompute}"]
    config = load_recipe("demo", [*values, f"learner.micro_batch_tokens={WORK.tokens}"])
    assert learner_memory(read_qwen_config(tmp_path), config).peak_bytes == pytest.approx(grown, rel=0.2)


def peak(_: LongshoreStep) -> int:
    return peak_bytes()
