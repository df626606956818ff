"""The few HTML pieces that reports are made of.  Cells are escaped here, and only here."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from launch.pages.packages import package_text
from launch.pages.static_files import STATIC_FOLDER, static_text

_STYLES = ("styles/tokens.css", "styles/style.css", "styles/report.css", "styles/chart.css", "styles/terminal.css")


class PageHeader(NamedTuple):
    """The header of a document."""

    name: str
    """Escaped here."""
    kind: str
    """The kind of document, for the window's title."""
    facts: str
    """HTML."""
    verdict: str
    """Escaped here."""
    verdict_kind: str = ""


def csp_source(text: str) -> str:
    """Return the source expression by which a Content-Security-Policy names this style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _mark() -> str:
    """Return the logo as a data URL."""
    return f"data:image/svg+xml;base64,{base64.b64encode((STATIC_FOLDER / 'mark.svg').read_bytes()).decode()}"


def html_head(title: str, styles: str, directives: Sequence[str] = (), *, script: str = "") -> str:
    """Return the start of a page that needs no network, up to its body.  Its policy allows this style, pictures within
    it and what ``directives`` add, which have to name the :func:`csp_source` of each script, ``script`` among them."""
    policy = "; ".join(("default-src 'none'", "img-src data:", f"style-src {csp_source(styles)}", *directives))
    scripts = f"<script>{script}</script>\n" if script else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="{_mark()}">
<style>{styles}</style>
{scripts}</head>
"""


def html_document(
    head: PageHeader, body: str, *, style: str = "", script: str = "", data: str = "", packages: Sequence[str] = ()
) -> str:
    """Return a page that needs no network, under a policy that allows only this style and this script by their hashes.

    ``style`` follows the common styles; ``data`` is JSON for the script, without ``<``; ``packages`` are npm packages
    that are embedded: ``uplot`` for charts, ``player`` for recordings.
    """
    package_styles = [package_text(f"{name}.css") for name in packages]
    styles = "\n".join([*package_styles, *map(static_text, _STYLES)]) + style
    libraries = inline_script("\n".join(filter(None, (package_text(f"{name}.js") for name in packages))))
    directives, scripts = list[str](), ""
    if script:
        sources = [csp_source(script), *([csp_source(libraries)] if libraries else [])]
        wasm = " 'wasm-unsafe-eval'" if "player" in packages else ""
        directives.append(f"script-src {' '.join(sources)}{wasm}")
        scripts = (
            f'<script type="application/json" id="data">{data}</script>\n<script type="module">{script}</script>\n'
        )
    pill = f"pill {head.verdict_kind}".rstrip()
    beginning = html_head(f"{head.name} · longshore {head.kind}", styles, directives, script=libraries)
    return f"""{beginning}<body class="report">
<header class="bar"><span class="brand"><img src="{_mark()}" alt="" width="22" height="22">
<span>longshore</span></span>
<div class="run"><h1>{escape(head.name)}</h1><p class="facts">{head.facts}</p></div>
<div class="status"><span class="{pill}">{escape(head.verdict)}</span></div></header>
<main>
{body}
</main>
{scripts}</body>
</html>
"""


def inline_script(script: str) -> str:
    """Return a script so that nothing in it ends the element that it stands in."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


class PageSection(NamedTuple):
    title: str
    body: str
    """HTML."""
    note: str = ""


def html_section(section: PageSection) -> str:
    note = f'<p class="note">{escape(section.note)}</p>' if section.note else ""
    head = f'<div class="panel-head"><h2>{escape(section.title)}</h2>{note}</div>'
    return f'<section class="panel">{head}{section.body}</section>'


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] | None = None) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    if not rows and total is None:
        return '<p class="none">None.</p>'
    columns = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(_row(row) for row in rows)
    foot = f"<tfoot>{_row(total)}</tfoot>" if total is not None else ""
    return f'<div class="scroll"><table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody>{foot}</table></div>'


def html_facts(facts: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f"<dl>{items}</dl>"


def _row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
