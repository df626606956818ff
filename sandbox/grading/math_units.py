r"""Splits an answer such as ``5 cm^2`` or ``3:30 p.m.`` into its text and the name of its unit.  Pure.

Any text in ``\text{…}`` behind a number may be a unit.  Outside it, where letters may be factors, a unit is a
lower-case word with a vowel or a known abbreviation; a single letter is one only behind a number: ``m`` and ``g``.
"""

from __future__ import annotations

import re

_NO_LIMITS = r"(?!.*\b(?:and|or|not|more|less|fewer|least|most|than)\b)"
_SHORT = r"[ckm]m|[km]g|ft|lbs?|hrs?|mi|yds?|oz|m[lL]|[mk]ph|k?Hz|k?Pa|USD|EUR"
_WORD = r"(?=[a-z]{3}|in(?![a-z]))[a-z]*[aeiou][a-z]+"
_AREA = r"(?:(?:square|sq|cubic|cu)\.?\s+)?"
_PER = rf"(?:\s*(?:/|\bper\s)\s*(?:[hs]|{_SHORT}|{_WORD}))?"
_UNIT = re.compile(
    r"(?:(?:(?<=[\d})])|(?<=\\pi))\s*\\(?:text(?:bf|it|rm|normal)?|mathrm|mbox)"
    rf"\s*\{{(?P<text>{_NO_LIMITS}[^{{}}\d]*?)\s*(?:\^\{{?(?P<inner>\d)\}}?\s*)?\}}"
    rf"|(?<=\d)\s+(?P<plain>{_NO_LIMITS}{_AREA}(?:[mg]|{_SHORT}|{_WORD}){_PER})"
    rf"|(?<=[}})])\s+(?P<behind>{_NO_LIMITS}{_AREA}(?:{_SHORT}|{_WORD}){_PER})"
    r"|(?<=\d)\s*(?P<clock>[AaPp]\.?\s?[Mm])"
    r"|(?<=\d)\s*(?P<sign>\\?%))"
    r"\s*(?:\^\s*\{?(?P<power>\d)\}?)?\s*$"
)
_KINDS = ("text", "plain", "behind", "clock", "sign")
_NAMES = {
    "mm": "millimeter", "cm": "centimeter", "m": "meter", "km": "kilometer", "g": "gram", "kg": "kilogram",
    "mg": "milligram", "l": "liter", "ml": "milliliter", "mi": "mile", "yd": "yard", "yds": "yard", "oz": "ounce",
    "in": "inch", "inches": "inch", "ft": "foot", "feet": "foot", "lb": "pound", "lbs": "pound",
    "s": "second", "sec": "second", "secs": "second", "min": "minute", "mins": "minute",
    "h": "hour", "hr": "hour", "hrs": "hour",
}  # fmt: skip
_SPEEDS = {"mph": "miles per hour", "kph": "kilometers per hour"}
_POWERS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}
_BRITISH = re.compile(r"(met|lit)re(s?)$")
_SLASH = re.compile(r"\s*/\s*|\s+per\s+")


def split_unit(answer: str) -> tuple[str, str]:
    """Return the answer without its unit, and one name for the unit however it is written; empty for none."""
    found = _UNIT.search(answer)
    if found is None:
        return answer, ""
    unit = next(found[kind] for kind in _KINDS if found[kind] is not None)
    return answer[: found.start()], _name_unit(unit, found["inner"] or found["power"] or "")


def _name_unit(unit: str, power: str) -> str:
    words = re.sub(r"[\\.]|(?<=[ap]\.)\s", "", unit.casefold()).split()
    if words and words[0] in _POWERS:
        power = _POWERS[words.pop(0)]
    text = " ".join(words)
    parts = _SLASH.split(_SPEEDS.get(text, text))
    return "/".join(map(_name_part, parts)) + (f"^{power}" if power else "")


def _name_part(unit: str) -> str:
    unit = _BRITISH.sub(r"\1er\2", unit)
    return _NAMES.get(unit) or unit.removesuffix("s")
