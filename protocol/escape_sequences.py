"""Patterns of the escape sequences of terminals (ECMA-48, DEC), with ESC or as one character of C1."""

from __future__ import annotations

CSI = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
"""Colours, cursor movement, modes."""
PASSED_BY_TMUX = r"tmux;(?:[^\x1b]++|\x1b\x1b){0,64}+"
"""This matches what tmux passes on, without its end. It has few escape characters, because each of them may be the
start of another such text."""
_PASSED_ON = rf"\x1bP(?:{PASSED_BY_TMUX}|\x1b[^\x1b\\][^\x1b]*+)\x1b\\"
"""What tmux (each ESC doubled) and screen pass on to the terminal that they run in."""
STRING_START = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"
STRING_BODY = r"[^\x07\x1b\x90\x98\x9c-\x9f]*+"
"""Text of a string: another start ends it, as in terminals, so that a text of many starts is scanned once."""
STRING = rf"{_PASSED_ON}|{STRING_START}{STRING_BODY}(?:\x07|\x1b\\|\x9c)"
"""Complete OSC, DCS, SOS, PM and APC sequences; one without its end would take all text that follows."""
OTHER = r"\x1b[ -/]*[0-~]"
"""Character sets, saved cursors, keypad modes, resets."""
