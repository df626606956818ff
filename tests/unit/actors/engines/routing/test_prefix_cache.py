"""If these fail, a request reads KV of weights that its label does not name."""

from __future__ import annotations

from actors.engines.routing.prefix_cache import PrefixKeys
from protocol.weights import WeightVersion

OLD, NEW = WeightVersion(1), WeightVersion(2)


def test_version_mode_keys_prefixes_by_weight_version_only() -> None:
    prefixes = PrefixKeys("version")
    first, other = prefixes.key_for_session("a", OLD), prefixes.key_for_session("b", OLD)
    assert first == other
    assert first.version == OLD
    assert prefixes.key_for_session("a", NEW).version == NEW
    assert prefixes.key_for_session("a", NEW).text != first.text


def test_session_mode_keeps_a_sessions_key_until_the_server_is_replaced() -> None:
    prefixes = PrefixKeys("session")
    begun = prefixes.key_for_session("a", OLD)
    assert prefixes.key_for_session("a", NEW) == begun
    assert prefixes.key_for_session("b", NEW).version == NEW
    assert prefixes.key_for_session("b", OLD).text != begun.text
    prefixes.clear()
    assert prefixes.key_for_session("a", NEW).version == NEW


def test_the_least_recently_used_session_is_evicted() -> None:
    prefixes = PrefixKeys("session", max_sessions=2)
    for session in ("a", "b", "a", "c"):
        prefixes.key_for_session(session, OLD)
    assert [prefixes.key_for_session(session, NEW).version for session in ("a", "c", "b")] == [OLD, OLD, NEW]
