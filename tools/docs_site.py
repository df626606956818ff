"""Hooks of the documentation site (``hooks`` in mkdocs.yml).

They add some pages of the repository's root, list pages without a nav entry under "More", name links to pages by the
pages' titles, and turn links to other files of the repository into plain text.
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
    "assets/mark.svg": "launch/pages/static/mark.svg",
}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add pages without a nav entry to the navigation."""
    nav: list[Any] = [*(cast("Any", config).nav or [])]
    placed = {page for page, _ in _pages(nav)}
    if others := sorted(path.name for path in Path(config.docs_dir).glob("*.md") if path.name not in placed):
        config.nav = [*nav, {"More": others}]
    return config


def _pages(nav: object, name: str = "") -> list[tuple[str, str]]:
    """Return (file, title) of every page in a part of the navigation."""
    if isinstance(nav, str):
        return [(nav, name)]
    if isinstance(nav, dict):
        return [page for inner, part in cast("dict[str, object]", nav).items() for page in _pages(part, inner)]
    return [page for part in cast("list[object]", nav) for page in _pages(part)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages from the repository's root."""
    for name, source in FROM_ROOT.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Rewrite links to the pages' places in the site."""
    folder = ROOT if page.file.src_uri in FROM_ROOT else ROOT / "docs"
    names = dict(_pages(cast("Any", config).nav))
    elsewhere = {ROOT / source: name for name, source in FROM_ROOT.items()}

    def here(link: re.Match[str]) -> str:
        text, target = link["text"], link["target"]
        if "://" in target:
            return link[0]
        path = (folder / target).resolve()
        file = elsewhere.get(path, path.name if path.parent == ROOT / "docs" else "")
        if not file:
            return text if "`" in text or " " in text else f"`{text}`"
        named = names.get(file, "") if text.removeprefix("docs/") == path.name else ""
        return f"[{named or text}]({file}{link['anchor'] or ''})"

    return LINK.sub(here, markdown)
