"""Keys as DevTools' ``Input.dispatchKeyEvent`` takes them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.browser.errors import BrowserActionError

_NUMBERS: Mapping[str, int] = {
    **dict(zip(("Enter", "Escape", "Tab", "Space", "Backspace", "Delete"), (13, 27, 9, 32, 8, 46), strict=True)),
    **{name: 33 + at for at, name in enumerate(("PageUp", "PageDown", "End", "Home"))},
    **{name: 37 + at for at, name in enumerate(("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"))},
    **{f"F{number}": 111 + number for number in range(1, 13)},
}
"""Windows' number of each key that has a name."""
_TEXTS: Mapping[str, str] = {"Enter": "\r", "Space": " "}


def key_event(key: str) -> Mapping[str, object]:
    """Return the parameters of a key: a name such as ``Enter``, or one character.  Raises BrowserActionError."""
    names = {name.lower().removeprefix("arrow"): name for name in _NUMBERS}
    name = "Space" if key == " " else names.get(key.lower().removeprefix("arrow"), "")
    if name:
        text = _TEXTS.get(name, "")
        shown = {"key": text if name == "Space" else name, "code": name, "windowsVirtualKeyCode": _NUMBERS[name]}
        return shown | ({"text": text} if text else {})
    if len(key) == 1 and key.isprintable():
        return {"key": key, "text": key}
    raise BrowserActionError(f"there is no key {key!r}: give one character, or one of {', '.join(_NUMBERS)}")
