"""If these fail, a request reads KV of weights that its label does not name."""

from __future__ import annotations

from actors.engines.prefixes import Prefixes
from protocol.weights import Version

OLD, NEW = Version(1), Version(2)


def test_a_fresh_prefix_belongs_to_the_weights_alone() -> None:
    prefixes = Prefixes("fresh")
    first, other = prefixes.key("a", OLD), prefixes.key("b", OLD)
    assert first == other
    assert first.version == OLD
    assert prefixes.key("a", NEW).version == NEW
    assert prefixes.key("a", NEW).text != first.text


def test_a_session_keeps_the_key_that_it_began_with_until_the_server_is_another() -> None:
    prefixes = Prefixes("session")
    begun = prefixes.key("a", OLD)
    assert prefixes.key("a", NEW) == begun
    assert prefixes.key("b", NEW).version == NEW
    assert prefixes.key("b", OLD).text != begun.text
    prefixes.forget()
    assert prefixes.key("a", NEW).version == NEW


def test_the_session_that_was_silent_longest_is_the_one_forgotten() -> None:
    prefixes = Prefixes("session", max_sessions=2)
    for session in ("a", "b", "a", "c"):
        prefixes.key(session, OLD)
    assert [prefixes.key(session, NEW).version for session in ("a", "c", "b")] == [OLD, OLD, NEW]
