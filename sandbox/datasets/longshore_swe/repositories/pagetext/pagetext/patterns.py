"""Patterns of paths: ``*`` and ``?`` within a part, ``**`` for any number of parts, ``!`` for what is left out."""


def match_part(pattern, text):
    """Return whether a part of a path matches a part of a pattern."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return match_part(pattern[1:], text) or (bool(text) and match_part(pattern, text[1:]))
    if not text:
        return False
    return pattern[0] in ("?", text[0]) and match_part(pattern[1:], text[1:])


def match_path(pattern, path):
    """Return whether a path matches a pattern as a whole."""
    return _match(pattern.split("/"), path.split("/"))


def _match(patterns, parts):
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_match(patterns[1:], parts[at:]) for at in range(len(parts) + 1))
    return bool(parts) and match_part(patterns[0], parts[0]) and _match(patterns[1:], parts[1:])


def select(paths, patterns):
    """Return the paths that the last pattern that matches them does not leave out, in their order.

    Without a pattern that takes anything in, every path is in at first.
    """
    starts_in = not any(not pattern.startswith("!") for pattern in patterns)
    chosen = []
    for path in paths:
        is_in = starts_in
        for pattern in patterns:
            if match_path(pattern.removeprefix("!"), path):
                is_in = not pattern.startswith("!")
        if is_in:
            chosen.append(path)
    return chosen


def read_patterns(lines):
    """Return the patterns of a file: a line each, without comments and blank lines.

    Raises ValueError, which names the line, for one that is only ``!`` or has an empty part.
    """
    patterns = []
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        if not all(text.removeprefix("!").split("/")):
            raise ValueError(f"line {number}: {text!r} is no pattern")
        patterns.append(text)
    return patterns
