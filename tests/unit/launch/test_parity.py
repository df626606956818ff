"""If these fail, a run whose engines serve something else than what is trained goes on, or a sound one is ended."""

from __future__ import annotations

import pytest

from launch.parity import ParityWatch
from protocol.errors import UserError


def measured(k3: float, tokens: float = 500.0) -> dict[str, float]:
    return {"parity_tokens": tokens, "parity_k3": k3}


def test_a_run_that_begins_out_of_parity_ends_with_what_to_compare() -> None:
    watch = ParityWatch(1e-3)
    assert watch.take({"parity_tokens": 0.0}) is None
    assert watch.take(measured(0.5, tokens=3)) is None
    with pytest.raises(UserError, match=r"k3 0\.02 is above stop\.parity_k3 = 0\.001.*engine\.dtype"):
        watch.take(measured(0.02))


def test_a_run_that_loses_it_later_is_told_once_and_goes_on() -> None:
    watch = ParityWatch(1e-3)
    assert watch.take(measured(1e-6)) is None
    assert "disagree" in str(watch.take(measured(0.02)))
    assert watch.take(measured(0.03)) is None
