"""If these fail, an agent fills the host's disk unseen, or every sandbox is measured every second."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandbox.disk import LONGEST_UNSEEN_S, Seen, is_due

sizes = st.integers(0, 1 << 40)


@given(used=sizes, grown=sizes, others=sizes, limit=sizes, free=sizes)
def test_no_layer_passes_its_limit_unmeasured_while_nobody_frees_anything(used, grown, others, limit, free):
    seen = Seen(Path("/"), limit, used, free, 0.0)
    if used + grown > limit:
        assert is_due(seen, free - grown - others, 0.0)


def test_a_quiet_disk_is_measured_now_and_then_only():
    seen = Seen(Path("/"), 100, 10, 1000, 0.0)
    assert not is_due(seen, 1000, LONGEST_UNSEEN_S)
    assert not is_due(seen, 5000, LONGEST_UNSEEN_S)
    assert is_due(seen, 1000, LONGEST_UNSEEN_S + 1)
