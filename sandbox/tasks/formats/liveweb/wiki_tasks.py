"""Families of tasks in the wiki."""

from __future__ import annotations

import random
from types import MappingProxyType

from sandbox.tasks.formats.liveweb.draft import WebTaskDraft, WebTaskFamily, click, go_to, log_in, require, type_text
from sandbox.tasks.sites.wiki_data import EDITORS, REGIONS, Town, make_towns

_SITE = "wiki"
_NEWEST = "SELECT author, body FROM revisions WHERE slug = '{slug}' ORDER BY number DESC LIMIT 1"
_OTHERS = "SELECT count(*) FROM revisions WHERE slug != '{slug}' AND author = '{user}'"


def _saved(town: Town, user: str, body: str) -> tuple[tuple[str, list[list[str | int]]], ...]:
    """Return the state after ``user`` changed the article of a town and no other."""
    return (
        (_NEWEST.format(slug=town.slug), [[user, body]]),
        (_OTHERS.format(slug=town.slug, user=user), [[0]]),
    )


def _largest(rng: random.Random, seed: int) -> WebTaskDraft:
    region = rng.choice(REGIONS)
    towns = [town for town in make_towns(seed) if town.region == region]
    require(len(towns) >= 3)
    best = max(towns, key=lambda town: town.population)
    return WebTaskDraft(
        site=_SITE,
        question=f"Which town in {region} has the largest population?",
        answer={"exact": best.name},
        actions=(go_to(_SITE), click("link", region), *(go_to(_SITE, f"wiki/{town.slug}") for town in towns)),
    )


def _elevation_gap(rng: random.Random, seed: int) -> WebTaskDraft:
    high, low = sorted(rng.sample(make_towns(seed), 2), key=lambda town: -town.elevation_m)
    return WebTaskDraft(
        site=_SITE,
        question=f"By how many metres does {high.name} lie higher than {low.name}?",
        answer={"number": high.elevation_m - low.elevation_m},
        actions=(
            go_to(_SITE),
            type_text("Search", high.name),
            click("button", "Search"),
            click("link", high.name),
            go_to(_SITE, f"wiki/{low.slug}"),
        ),
    )


def _first_author(rng: random.Random, seed: int) -> WebTaskDraft:
    town = rng.choice(make_towns(seed))
    return WebTaskDraft(
        site=_SITE,
        question=f"Who wrote the first revision of the article about {town.name}?",
        answer={"exact": town.revisions[0].author},
        actions=(go_to(_SITE, f"wiki/{town.slug}"), click("link", "History")),
    )


def _towns_on_river(rng: random.Random, seed: int) -> WebTaskDraft:
    towns = make_towns(seed)
    river, region = rng.choice(towns).river, rng.choice(REGIONS)
    found = [town.name for town in towns if (town.river, town.region) == (river, region)]
    require(len(found) >= 2)
    return WebTaskDraft(
        site=_SITE,
        question=f"Which towns in {region} lie on the river {river}? Name all, with commas between them.",
        answer={"set": found},
        actions=(go_to(_SITE, "search", q=f"{region}, on the river {river}"),),
    )


def _correct_mayor(rng: random.Random, seed: int) -> WebTaskDraft:
    town, editor = rng.choice(make_towns(seed)), rng.choice(EDITORS)
    mayor = f"{rng.choice(('Alma', 'Jonas', 'Mina'))} Falk"
    body = town.revisions[-1].body.replace(f"Mayor: {town.mayor}", f"Mayor: {mayor}")
    return WebTaskDraft(
        site=_SITE,
        question=(
            f"The mayor of {town.name} is now {mayor}. Log in as {editor[0]} with the password {editor[1]}, and "
            "correct this in the article; leave the rest of its text as it is."
        ),
        state=_saved(town, editor[0], body),
        actions=(
            *log_in(_SITE, editor, f"wiki/{town.slug}/edit"),
            type_text("Text", body),
            type_text("Summary", "new mayor"),
            click("button", "Save"),
        ),
    )


def _restore(rng: random.Random, seed: int) -> WebTaskDraft:
    town, editor = rng.choice(make_towns(seed)), rng.choice(EDITORS)
    return WebTaskDraft(
        site=_SITE,
        question=(
            f"Log in as {editor[0]} with the password {editor[1]}, and restore the first revision of the article about "
            f"{town.name}."
        ),
        state=_saved(town, editor[0], town.revisions[0].body),
        actions=(
            *log_in(_SITE, editor, f"wiki/{town.slug}/history"),
            click("link", "Revision 1"),
            click("button", "Restore this revision"),
        ),
    )


WIKI_FAMILIES = MappingProxyType[str, WebTaskFamily](
    {
        "wiki-largest": _largest,
        "wiki-elevation-gap": _elevation_gap,
        "wiki-first-author": _first_author,
        "wiki-towns-on-river": _towns_on_river,
        "wiki-correct-mayor": _correct_mayor,
        "wiki-restore": _restore,
    }
)
