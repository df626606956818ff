"""If these fail, a run whose engines serve something else than what is trained goes on, or a sound one is ended."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.config import load_recipe
from launch.run_records.step_facts import LogprobParity
from launch.training.logprob_parity import ParityMonitor, measure_parity
from protocol.errors import UserError


def measured(k3: float, tokens: float = 500.0) -> dict[str, float]:
    return {"parity_tokens": tokens, "parity_k3": k3}


def watching() -> ParityMonitor:
    return ParityMonitor(1e-3, "engine.dtype = 'float32' and learner.dtype = 'bfloat16'")


def test_a_run_that_starts_out_of_parity_ends_with_the_settings_to_compare() -> None:
    message = r"512 tokens.*k3 0\.02 is above parity\.max_k3 = 0\.001.*engine\.dtype.*learner\.dtype.*--resume"
    with pytest.raises(UserError, match=message) as caught:
        watching().check_samples(LogprobParity(0.02, 512))
    assert "\n" not in str(caught.value)


def test_without_a_parity_check_the_first_batch_with_enough_tokens_decides() -> None:
    watch = watching()
    assert watch.check_step({"parity_tokens": 0.0}) is None
    assert watch.check_step(measured(0.5, tokens=3)) is None
    with pytest.raises(UserError, match=r"k3 0\.02 is above parity\.max_k3 = 0\.001"):
        watch.check_step(measured(0.02))


def test_a_later_loss_of_parity_is_reported_once_per_source_and_the_run_goes_on() -> None:
    watch = watching()
    assert watch.check_samples(LogprobParity(1e-6, 512)) is None
    assert "of a batch" in str(watch.check_step(measured(0.02)))
    assert watch.check_step(measured(0.03)) is None
    assert "sampled for a parity check" in str(watch.check_samples(LogprobParity(0.02, 512)))
    assert watch.check_samples(LogprobParity(0.03, 512)) is None


def test_a_k3_that_is_not_a_number_is_out_of_parity() -> None:
    found = measure_parity([np.array([math.nan])], [np.array([-1.0])])
    assert found.rounded_k3 is None
    with pytest.raises(UserError, match="k3 nan"):
        watching().check_samples(found)


def test_a_token_that_one_side_considers_impossible_counts_with_a_finite_k3() -> None:
    found = measure_parity([np.array([-math.inf, -1.0])], [np.array([-1.0, -1.0])])
    assert (found.tokens, math.isfinite(found.k3)) == (2, True)
    assert found.k3 > 1


logprobs = st.lists(st.floats(-15, 0), min_size=1, max_size=20)


@given(logprobs, st.data())
def test_k3_is_the_mean_over_all_tokens_of_r_minus_1_minus_log_r(learner: list[float], data: st.DataObject) -> None:
    engine = data.draw(st.lists(st.floats(-15, 0), min_size=len(learner), max_size=len(learner)))
    cut = data.draw(st.integers(0, len(learner)))
    found = measure_parity(
        [np.array(learner[:cut]), np.array(learner[cut:])], [np.array(engine[:cut]), np.array(engine[cut:])]
    )
    gaps = [a - b for a, b in zip(learner, engine, strict=True)]
    expected = sum(math.expm1(gap) - gap for gap in gaps) / len(gaps)
    assert found.tokens == len(learner)
    assert found.k3 == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert found.k3 > -1e-15


@pytest.mark.parametrize(
    ("dtypes", "limit"),
    [
        (("float32", "float32"), 1e-4),
        (("bfloat16", "float32"), 1e-3),
        (("float32", "bfloat16"), 1e-3),
        (("bfloat16", "bfloat16"), 1e-3),
    ],
)
def test_the_parity_limit_is_that_of_the_coarser_dtype(dtypes: tuple[str, str], limit: float) -> None:
    engine, learner = dtypes
    overrides = [f"engine.dtype={engine}", f"learner.dtype={learner}"]
    if "bfloat16" in dtypes:
        overrides += ["engine.device=cuda", "learner.device=cuda"]
    assert load_recipe("demo", overrides).parity_limit == limit
    assert load_recipe("demo", [*overrides, "parity.max_k3=0.5"]).parity_limit == 0.5
