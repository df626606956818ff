"""The few HTML pieces that reports are made of.  Cells are escaped here, and only here."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

_STATIC = Path(__file__).parent / "static"
_STYLES = ("tokens.css", "style.css", "report.css")


class Head(NamedTuple):
    """What stands above a document's body."""

    name: str
    """Escaped here."""
    kind: str
    """What it is, for the window's title."""
    facts: str
    """HTML."""
    verdict: str
    """Escaped here."""
    verdict_kind: str = ""


def document(head: Head, body: str, *, style: str = "", script: str = "", data: str = "") -> str:
    """A page that needs no network, under a policy that allows this style and this script alone, by their hashes.

    ``style`` comes after the monitor's own; ``data`` is JSON for the script, with no ``<`` in it.
    """
    styles = "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in _STYLES) + style
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(styles)}'"
    scripts = ""
    if script:
        policy += f"; script-src '{_hash(script)}'"
        scripts = (
            f'<script type="application/json" id="data">{data}</script>\n<script type="module">{script}</script>\n'
        )
    mark = base64.b64encode((_STATIC / "mark.svg").read_bytes()).decode()
    pill = f"pill {head.verdict_kind}".rstrip()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(head.name)} · longshore {head.kind}</title>
<link rel="icon" href="data:image/svg+xml;base64,{mark}">
<style>{styles}</style>
</head>
<body class="report">
<header class="bar"><span class="brand"><img src="data:image/svg+xml;base64,{mark}" alt="" width="22" height="22">
<span>longshore</span></span>
<div class="run"><h1>{escape(head.name)}</h1><p class="facts">{head.facts}</p></div>
<div class="status"><span class="{pill}">{escape(head.verdict)}</span></div></header>
<main>
{body}
</main>
{scripts}</body>
</html>
"""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


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
