"""Makes rows about the sites of ours, by family and seed: the same in every process."""

from __future__ import annotations

import random
from itertools import count as count_up
from pathlib import Path
from types import MappingProxyType

from sandbox.tasks.formats.liveweb.dashboard_tasks import DASHBOARD_FAMILIES
from sandbox.tasks.formats.liveweb.draft import DONE, NoInstance, WebTaskDraft, WebTaskFamily
from sandbox.tasks.formats.liveweb.rows import FORMAT
from sandbox.tasks.formats.liveweb.shop_tasks import SHOP_FAMILIES
from sandbox.tasks.formats.liveweb.wiki_tasks import WIKI_FAMILIES
from sandbox.tasks.formats.rows import JsonRow, read_row
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.sites.site_services import site_url
from sandbox.tasks.task import Task

WEB_FAMILIES = MappingProxyType[str, WebTaskFamily]({**SHOP_FAMILIES, **WIKI_FAMILIES, **DASHBOARD_FAMILIES})
_SEEDS = 100_000
"""Number of instances of a family that belong to one seed."""


def make_web_row(family: str, seed: int) -> JsonRow:
    """Return the row (family, seed).  Raises KeyError for an unknown family."""
    for attempt in count_up():
        site_seed = 1000 * seed + attempt
        try:
            draft = WEB_FAMILIES[family](random.Random(f"{family} {site_seed}"), site_seed)
        except NoInstance:
            continue
        return _row(f"{family}-{seed}", family, site_seed, draft)
    raise AssertionError  # the count has no end


def generate_web_tasks(seed: int, count: int, held_out: int) -> list[Task]:
    """Return ``count`` tasks, cycling through the families, and then ``held_out`` other ones of each family."""
    names, first = list(WEB_FAMILIES), seed * _SEEDS
    drawn = [(names[n % len(names)], first + n // len(names)) for n in range(count)]
    others = [(name, first + _SEEDS // 2 + n) for name in names for n in range(held_out)]
    return [
        read_row(FORMAT, make_web_row(name, number), TaskProblems(Path(f"{name}-{number}")))
        for name, number in (*drawn, *others)
    ]


def _row(name: str, family: str, seed: int, draft: WebTaskDraft) -> JsonRow:
    stop = {"type": "stop", "params": {"answer": _answer_text(draft)}}
    row: JsonRow = {
        "task_id": name,
        "family": family,
        "start_url": site_url(draft.site),
        "question": draft.question,
        "sites": [draft.site],
        "seed": seed,
        "actions": [*draft.actions, stop],
    }
    if draft.answer is not None:
        row["answer"] = draft.answer
    if draft.state:
        row["state"] = [{"site": draft.site, "sql": sql, "rows": rows} for sql, rows in draft.state]
    return row


def _answer_text(draft: WebTaskDraft) -> str:
    match draft.answer:
        case {"set": members}:
            return ", ".join(members)
        case {"number": number}:
            return str(number)
        case {"exact": text}:
            return str(text)
        case _:
            return DONE
