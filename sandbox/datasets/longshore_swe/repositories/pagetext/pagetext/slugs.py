"""Names of headings in links."""


def slug(heading):
    """Return the heading in small letters, with one dash for each run of other characters, and none at its ends."""
    parts, current = [], ""
    for letter in heading.lower():
        if letter.isalnum():
            current += letter
        elif current:
            parts.append(current)
            current = ""
    if current:
        parts.append(current)
    return "-".join(parts)


class SlugBook:
    """Gives each heading of a page a name of its own: ``setup``, ``setup-1``, ``setup-2``."""

    def __init__(self, reserved=()):
        self._used = set(reserved)

    def name(self, heading, default="section"):
        """Return a new name for the heading; ``default`` is that of a heading without letters and digits."""
        base = slug(heading) or default
        name, number = base, 0
        while name in self._used:
            number += 1
            name = f"{base}-{number}"
        self._used.add(name)
        return name
