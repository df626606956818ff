"""The actions of LIVEWEB's agents, ``{"type", "params"}``: their names, and the answer of the last one.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

STOP = "stop"
ACTION_TYPES = (
    *("goto", "click", "type", "press", "scroll", "view_more", "back", "wait", "read", "click_role", "type_role"),
    STOP,
)


def stop_answer(params: Mapping[str, object]) -> str | dict[str, object] | None:
    """Return the answer of the action ``stop``; None if it has none.

    LIVEWEB puts named answers under ``final``; they may also stand alone, as may a single ``answer``, which is returned
    by that name unless it is a text."""
    final = params.get("final", params)
    given = cast("dict[str, object]", final) if isinstance(final, dict) else {}
    if isinstance(named := given.get("answers"), dict):
        return cast("dict[str, object]", named)
    answer = given.get("answer")
    return answer if isinstance(answer, str | None) else {"answer": answer}
