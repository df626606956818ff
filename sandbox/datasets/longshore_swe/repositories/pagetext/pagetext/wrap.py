"""Breaks paragraphs into lines."""


def wrap(text, width=72, indent="", first_indent=None):
    """Return the lines of a paragraph, none wider than ``width`` unless a single word is.

    Each line begins with ``indent``, the first one with ``first_indent`` if that is given, even an empty one.
    """
    if width < 1:
        raise ValueError(f"width is {width}")
    first = indent if first_indent is None else first_indent
    lines, current = [], ""
    for word in text.split():
        start = indent if lines else first
        if not current:
            current = start + word
        elif len(current) + 1 + len(word) <= width:
            current += " " + word
        else:
            lines.append(current)
            current = indent + word
    if current:
        lines.append(current)
    return lines


def paragraphs(text):
    """Return the paragraphs of a text, which are separated by blank lines, each as one line."""
    found, current = [], []
    for line in [*text.splitlines(), ""]:
        if line.strip():
            current.append(line.strip())
        elif current:
            found.append(" ".join(current))
            current = []
    return found


def justify(line, width):
    """Return a line with blanks between its words such that it fills ``width``; more of them come first."""
    words = line.split()
    gaps = len(words) - 1
    if gaps < 1:
        return line
    blanks = width - sum(map(len, words))
    if blanks < gaps:
        return line
    each, rest = divmod(blanks, gaps)
    parts = [word + " " * (each + (1 if number < rest else 0)) for number, word in enumerate(words[:-1])]
    return "".join([*parts, words[-1]])
