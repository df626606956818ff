"""The places, people and revisions of the wiki about a country that does not exist, a function of its seed.

Standard library only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

REGIONS = ("Northmark", "Eastvale", "Southern Isles", "Westmoor")
EDITORS = (("liv", "quarry5"), ("oskar", "meadow2"))
"""Names and passwords of those who may log in."""
_OTHER_AUTHORS = ("ana", "bertil", "cho", "dmitri", "esi")
_HEADS = (
    *("Ard", "Bel", "Cor", "Dun", "Eld", "Fen", "Gar", "Hol"),
    *("Ist", "Kel", "Lor", "Mar", "Nor", "Oss", "Pel", "Rav"),
)
_TAILS = ("wick", "ford", "haven", "mere", "stead", "ton", "bury", "holm")
_RIVERS = ("Aune", "Brisk", "Calder", "Drau", "Esk")
_FIRST, _LAST = ("Ida", "Karl", "Nora", "Pavel", "Rosa", "Sten", "Tova", "Ugo"), ("Brandt", "Castell", "Dahl", "Ek")
_TRADES = ("glass", "paper", "cheese", "clocks", "boats", "wool", "salt")
_SUMMARIES = ("fixed a typo", "new census", "added the river", "better wording", "checked against the atlas")


@dataclass(frozen=True, slots=True)
class Revision:
    author: str
    summary: str
    body: str


@dataclass(frozen=True, slots=True)
class Town:
    name: str
    region: str
    population: int
    founded: int
    elevation_m: int
    mayor: str
    river: str
    revisions: tuple[Revision, ...]

    @property
    def slug(self) -> str:
        return self.name.lower()


def make_towns(seed: int) -> list[Town]:
    """Return 28 towns, ordered by name; no two have the same population, year or elevation."""
    rng = random.Random(f"wiki {seed}")
    names = rng.sample([head + tail for head in _HEADS for tail in _TAILS], 28)
    populations, years = rng.sample(range(900, 90_000), 28), rng.sample(range(1050, 1890), 28)
    elevations = rng.sample(range(4, 1200), 28)
    towns = [
        _town(rng, name, population, founded, elevation)
        for name, population, founded, elevation in zip(names, populations, years, elevations, strict=True)
    ]
    return sorted(towns, key=lambda town: town.name)


def _town(rng: random.Random, name: str, population: int, founded: int, elevation: int) -> Town:
    mayor = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
    town = Town(name, rng.choice(REGIONS), population, founded, elevation, mayor, rng.choice(_RIVERS), ())
    trade, older = rng.choice(_TRADES), sorted(rng.sample(range(500, population), rng.randint(1, 3)))
    revisions = (
        Revision(
            rng.choice(_OTHER_AUTHORS),
            rng.choice(_SUMMARIES) if index else "new article",
            _town_text(town, number, trade),
        )
        for index, number in enumerate([*older, population])
    )
    return replace(town, revisions=tuple(revisions))


def _town_text(town: Town, population: int, trade: str) -> str:
    """Return an article of a town, one fact a line."""
    lines = (
        f"{town.name} is a town in {town.region}, on the river {town.river}. It is known for its {trade}.",
        f"Population: {population}",
        f"Founded: {town.founded}",
        f"Elevation: {town.elevation_m} m",
        f"Mayor: {town.mayor}",
    )
    return "\n".join(lines)
