"""What the site needs beyond docs/ as it lies: mkdocs calls these (``hooks`` in mkdocs.yml).

Some pages of the repository's root belong to it too, a page that the navigation does not name yet stands under "More",
and a link to a file of the repository that is no page is its text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FROM_ROOT = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "assets/mark.svg": "launch/monitor/static/mark.svg",
}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take in pages that nobody has placed."""
    nav: list[Any] = list(cast("list[Any]", config.nav or []))
    placed = set(_pages(nav))
    if others := sorted(path.name for path in Path(config.docs_dir).glob("*.md") if path.name not in placed):
        config.nav = [*nav, {"More": others}]
    return config


def _pages(nav: object) -> list[str]:
    """The files that a part of the navigation names."""
    if isinstance(nav, str):
        return [nav]
    inner = cast("dict[str, object]", nav).values() if isinstance(nav, dict) else cast("list[object]", nav)
    return [page for each in inner for page in _pages(each)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in what lies elsewhere."""
    for name, source in FROM_ROOT.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links lead where the pages are here."""
    folder = ROOT if page.file.src_uri in FROM_ROOT else ROOT / "docs"

    def here(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target:
            return link[0]
        path = (folder / target).resolve()
        known = {ROOT / source: name for name, source in FROM_ROOT.items()}
        if path in known:
            return f"[{link['text']}]({known[path]}{link['anchor'] or ''})"
        if path.parent == ROOT / "docs":
            return f"[{link['text']}]({path.name}{link['anchor'] or ''})"
        return link["text"] if "`" in link["text"] or " " in link["text"] else f"`{link['text']}`"

    return LINK.sub(here, markdown)
