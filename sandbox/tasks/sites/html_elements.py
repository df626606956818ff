"""Writes HTML: elements from Python values, everything that is not an element escaped.  Standard library only."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

_STYLE = """
body{margin:0;font:16px/1.5 system-ui,"DejaVu Sans",sans-serif;color:#1d2733;background:#f6f7f9}
header{background:#1f3a4d;color:#fff;padding:10px 24px;display:flex;gap:20px;align-items:center;flex-wrap:wrap}
header a{color:#cfe6f5;text-decoration:none}header strong a{color:#fff;font-size:20px}
header form{margin-left:auto}main{max-width:960px;margin:0 auto;padding:16px 24px 48px;background:#fff}
a{color:#0b62a3}h1{font-size:26px;margin:.4em 0}h2{font-size:19px}
table{border-collapse:collapse;width:100%}td,th{padding:5px 10px;border-bottom:1px solid #dde3ea;text-align:left}
fieldset{border:1px solid #dde3ea;border-radius:4px;margin:6px 0}
fieldset label{display:inline-block;margin:2px 10px 2px 0}
input,textarea,button{font:inherit;padding:4px 8px;border:1px solid #aab6c2;border-radius:4px}
textarea{width:100%;box-sizing:border-box;height:220px}button{background:#0b62a3;color:#fff;border-color:#0b62a3}
label{display:block;margin:8px 0}.inline label,.inline{display:inline-block;margin:4px 12px 4px 0}
.notice{background:#e8f4e8;border:1px solid #9ccb9c;padding:8px 12px}.error{background:#fbe9e7;border-color:#e0a39a}
.pages{margin:14px 0}.pages>*{margin-right:12px}.cards{display:grid;grid-template-columns:repeat(3,1fr);gap:14px}
.card{border:1px solid #dde3ea;border-radius:6px;padding:12px}.quiet{color:#5b6875}
"""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def join_html(parts: Iterable[str]) -> Html:
    """Join elements and texts; texts are escaped."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))


def element(name: str, /, *content: str, **attributes: str | bool) -> Html:
    """Write an element; ``class_`` and ``for_`` stand for the attributes ``class`` and ``for``."""
    given = "".join(
        f" {key.rstrip('_')}" if value is True else f' {key.rstrip("_")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not False
    )
    if name in {"input", "meta"}:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join_html(content)}</{name}>")


def link(text: str, path: str, query: Mapping[str, str] | None = None) -> Html:
    """Write a link to a path with the query's values that are not empty."""
    kept = {key: value for key, value in (query or {}).items() if value}
    return element("a", text, href=f"{path}?{urlencode(kept)}" if kept else path)


def text_field(label: str, name: str, value: str = "", kind: str = "text") -> Html:
    return element("label", f"{label} ", element("input", name=name, value=value, type=kind, **{"aria-label": label}))


def hidden_field(name: str, value: str) -> Html:
    return element("input", type="hidden", name=name, value=value)


def choice_field(label: str, name: str, choices: Sequence[tuple[str, str]], chosen: str = "") -> Html:
    """Write a choice as radio buttons, which need no more than a click; ``choices`` are values with their texts."""
    buttons = (
        element("label", element("input", type="radio", name=name, value=value, checked=value == chosen), f" {text}")
        for value, text in choices
    )
    return element("fieldset", element("legend", label), *buttons)


def form(action: str, *content: str, method: str = "post", button: str = "Send", inline: bool = False) -> Html:
    sent = element("button", button, type="submit")
    return element("form", *content, sent, action=action, method=method, class_="inline" if inline else "stacked")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Write a table; a first column of empty heading is left as it is."""
    return element(
        "table",
        element("thead", element("tr", *(element("th", each, scope="col") for each in head))),
        element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows)),
    )


def page_links(path: str, query: Mapping[str, str], page: int, pages: int) -> Html:
    """Write the links to the pages of a list."""
    around = [f"Page {page} of {pages}"]
    if page > 1:
        around.append(link("Previous page", path, {**query, "page": str(page - 1)}))
    if page < pages:
        around.append(link("Next page", path, {**query, "page": str(page + 1)}))
    return element("nav", *(element("span", each) for each in around), class_="pages", **{"aria-label": "Pages"})


def document(site: str, title: str, header: Sequence[str], *content: str) -> str:
    """Write a whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("title", f"{title} – {site}"),
        element("style", Html(_STYLE)),
    )
    top = element("header", element("strong", link(site, "/")), *header)
    return f"<!doctype html>\n{element('html', head, element('body', top, element('main', *content)), lang='en')}"
