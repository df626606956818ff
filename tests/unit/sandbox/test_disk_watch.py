"""If these fail, an agent fills the host's disk unseen, or every sandbox is measured every second."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandbox.disk import FILE_BYTES, LONGEST_UNSEEN_S, Seen, _used, is_due

sizes = st.integers(0, 1 << 40)


@given(used=sizes, grown=sizes, others=sizes, limit=sizes, free=sizes)
def test_no_layer_passes_its_limit_unmeasured_while_nobody_frees_anything(used, grown, others, limit, free):
    seen = Seen((Path("/"),), limit, used, free, 0.0)
    if used + grown > limit:
        assert is_due(seen, free - grown - others, 0.0)


def test_a_quiet_disk_is_measured_now_and_then_only():
    seen = Seen((Path("/"),), 100, 10, 1000, 0.0)
    assert not is_due(seen, 1000, LONGEST_UNSEEN_S)
    assert not is_due(seen, 5000, LONGEST_UNSEEN_S)
    assert is_due(seen, 1000, LONGEST_UNSEEN_S + 1)


def test_bytes_count_and_so_do_files_and_what_is_gone_counts_for_nothing(tmp_path: Path):
    """Else empty files without end are as much work as an agent likes, for whoever copies or removes them."""
    large, many = tmp_path / "large", tmp_path / "many"
    for folder in (large, many):
        folder.mkdir()
    (large / "f").write_bytes(b"x" * (1 << 20))
    for number in range(300):
        (many / str(number)).touch()
    used = _used([large, many, tmp_path / "gone"])
    assert used.keys() == {large, many}
    assert used[large] >= 1 << 20
    assert used[many] == 301 * FILE_BYTES
