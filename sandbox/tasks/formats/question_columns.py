"""Judges by its name each column that a row has beside its question and its answer.  Pure.

What is part of the question is told to the agent with it where it is a text, and makes the row unusable where it is
not.  What says where the row comes from, how hard it is or once more what the answer is, is nothing that an agent is
told.  Every other column is remarked on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sandbox.tasks.problems import TaskProblems

_BEFORE = (
    *("system", "system_prompt", "system_message", "instruction", "instructions"),
    *("background", "context", "passage", "article", "document", "story", "paragraph", "table"),
)
"""Columns whose text comes before the question, in this order."""
_AFTER = ("input",)
_MEDIUM = r"(image|img|picture|photo|figure|diagram|video|audio)s?"
_MEDIA = re.compile(rf"(decoded_)?{_MEDIUM}(_?(\d+|paths?|urls?|files?|bytes|base64))?")
_ASKED = re.compile(
    r"[a-j]|op[a-j]|(choice|option)s?(_?[a-j\d])?|(answer|multiple)_choices|documents|contexts|passages|tables"
    r"|((conversation|chat|dialogue?)_)?history|dialogue?|tools|functions|starter_code"
)
"""Columns of a question that are more than a text to be told with it."""
_TOLERANCE = "tolerance"
_HARMLESS = re.compile(
    # names and places
    r"(.*_)?(id|ids|idx|index|uuid|uid|hash|url|urls|link|source|sources|dataset|dataset_name|split|subset|config|license)"
    r"|author|__index_level_\d__|qid|fold|partition|origin|provenance|competition|contest|metadata|meta|extra"
    r"|extra_info|style|agent_name|ability"
    # kinds, difficulty and counts
    r"|(.*_)?(type|category|subject|topic|domain|field|skill|difficulty|level|rate|score|count|length|tokens)s?"
    r"|(num|n|is|has|pass)_.*|subdomain|tags?|lang|language|grade|year|date|rating|complexity"
    # the answer again, and the way to it
    r"|(.*_)?(answer|solution|truth|output|response|completion|generation|rationale|explanation|reasoning|proof)s?"
    r"|label|target|gt|gold|cot|chain_of_thought|correctness.*|steps"
)


def add_question_parts(
    question: str, columns: Mapping[str, object], problems: TaskProblems
) -> tuple[str, tuple[str, ...]]:
    """Return the question with the texts that belong to it, and the names of the columns that they are from.

    ``columns``: those that have not been read.  What cannot be told is among ``problems``, or remarked on.
    """
    told: dict[str, str] = {}
    refused: list[str] = []
    for name, value in columns.items():
        known = re.sub(r"\W+", "_", name.strip().lower())
        if value in (None, "", [], {}) or (isinstance(value, str) and _is_told(value, question)):
            continue
        if known in (*_BEFORE, *_AFTER) and isinstance(value, str):
            told[name] = known
        elif known in (*_BEFORE, *_AFTER) or _ASKED.fullmatch(known):
            refused.append(name)
        elif not (known == _TOLERANCE or _HARMLESS.fullmatch(known) or _MEDIA.fullmatch(known)):
            problems.remark(f"the row has a column that no agent is told of and no test uses: {name}")
    if columns.get(_TOLERANCE):
        problems.add(f"the row has {_TOLERANCE}", "no answer is compared with one: write how exact it is to be")
    if refused:
        problems.add(f"the row has {', '.join(sorted(refused))}", "no agent is told of it: write it into the question")
    refuse_media(columns, problems)
    before = _texts(_BEFORE, told, columns)
    return "\n\n".join([*before, question, *_texts(_AFTER, told, columns)]), tuple(told)


def _texts(order: Iterable[str], told: Mapping[str, str], columns: Mapping[str, object]) -> list[str]:
    return [str(columns[name]).strip() for known in order for name, each in told.items() if each == known]


def _is_told(text: str, question: str) -> bool:
    """Return whether a text, of whole words, is in the question."""
    return re.search(rf"(?<!\w){re.escape(text.strip())}(?!\w)", question) is not None


def refuse_media(columns: Mapping[str, object], problems: TaskProblems) -> None:
    """Record the columns of what is shown or played beside a question."""
    if media := sorted(name for name, value in columns.items() if value and _MEDIA.fullmatch(name.lower())):
        problems.add(f"the row has {', '.join(media)}", "agents here are told text only")
