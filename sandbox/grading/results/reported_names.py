"""Matches test names: reporters write the name of one test in several forms. Pure."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_PARTS = 16
"""Maximum number of parts into which a name is divided, from its end."""


def short_name(name: str) -> str:
    """Return the name without its file: ``tests/test_a.py::test_x[1]`` → ``test_x[1]``."""
    return name.split("::", 1)[-1]


def plain_name(name: str) -> str:
    """Return the name without parameters: ``test_x[1]`` → ``test_x``."""
    return name.partition("[")[0]


class ReportedNames:
    """A set of test names, each found by any of its forms."""

    def __init__(self, names: Iterable[str]) -> None:
        self._whole: dict[str, str] = {}
        self._ends: dict[str, str] = {}
        for name in sorted(names, key=len):
            forms = _forms(name)
            self._whole.setdefault(forms[0], name)
            for form in forms:
                self._ends.setdefault(form, name)

    def resolve(self, name: str) -> str | None:
        """Return the known name that ``name`` means.

        It is the same name; or the shortest known name that ends with ``name``; or the longest that ``name`` ends with.
        A test's name also means each of its parametrized forms.
        """
        return self._meant(name) or self._meant(plain_name(name))

    def _meant(self, name: str) -> str | None:
        whole, *ends = _forms(name)
        found = (self._whole.get(whole), self._ends.get(whole), *map(self._whole.get, ends))
        return next(filter(None, found), None)


def _forms(name: str) -> list[str]:
    """Return the forms of a name: ``a/b.py::C::t[x/y]`` is ``a.b.C.t[x/y]``, and its ends ``b.C.t[x/y]`` …"""
    head, bracket, parameters = name.partition("[")
    dotted = head.replace(".py::", ".").replace("::", ".").replace("/", ".").strip(". ")
    parts = dotted.rsplit(".", _MOST_PARTS - 1)
    return [f"{'.'.join(parts[at:])}{bracket}{parameters}" for at in range(len(parts))]
