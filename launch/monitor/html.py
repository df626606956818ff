"""The few HTML pieces that the report is made of.  Cells are escaped here, and only here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Section(NamedTuple):
    title: str
    body: str
    """HTML."""
    note: str = ""


def page_section(section: Section) -> str:
    note = f'<p class="note">{escape(section.note)}</p>' if section.note else ""
    head = f'<div class="panel-head"><h2>{escape(section.title)}</h2>{note}</div>'
    return f'<section class="panel">{head}{section.body}</section>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] | None = None) -> str:
    """First column is text, the others are numbers."""
    if not rows and total is None:
        return '<p class="none">None.</p>'
    columns = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(_row(row) for row in rows)
    foot = f"<tfoot>{_row(total)}</tfoot>" if total is not None else ""
    return f'<div class="scroll"><table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody>{foot}</table></div>'


def facts_list(facts: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f"<dl>{items}</dl>"


def _row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
