"""The wiki: articles with a search, lists by region, editing, histories, and the return to an earlier revision.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import ClassVar

from sandbox.tasks.sites.html_elements import (
    Html,
    element,
    form,
    hidden_field,
    link,
    page_links,
    table,
    text_field,
)
from sandbox.tasks.sites.web_app import Route, SiteError, SiteRequest, SiteResponse, WebApp
from sandbox.tasks.sites.wiki_data import EDITORS, REGIONS, make_towns

_SCHEMA = """
CREATE TABLE users (name TEXT PRIMARY KEY, password TEXT);
CREATE TABLE articles (slug TEXT PRIMARY KEY, title TEXT, region TEXT, body TEXT);
CREATE TABLE revisions (slug TEXT, number INTEGER, author TEXT, summary TEXT, body TEXT);
"""
_PAGE = 10


class Wiki(WebApp):
    title: ClassVar[str] = "Atlas of Verania"

    def __init__(self, seed: int, secret: str) -> None:
        super().__init__(_SCHEMA, secret)
        self.database.executemany("INSERT INTO users VALUES (?,?)", EDITORS)
        for town in make_towns(seed):
            self.all("INSERT INTO articles VALUES (?,?,?,'')", town.slug, town.name, town.region)
            for revision in town.revisions:
                self._save(town.slug, revision.author, revision.summary, revision.body)

    def routes(self) -> Sequence[Route]:
        article = r"/wiki/([a-z]{1,40})"
        return (
            Route("GET", "/", self._home),
            Route("GET", "/search", self._search),
            Route("GET", "/region", self._region),
            Route("GET", "/recent", self._recent),
            Route("GET", article, self._article),
            Route("GET", f"{article}/edit", self._edit_page),
            Route("POST", f"{article}/edit", self._edit),
            Route("GET", f"{article}/history", self._history),
            Route("GET", rf"{article}/revision/(\d{{1,6}})", self._revision),
            Route("POST", f"{article}/restore", self._restore),
        )

    def header(self, request: SiteRequest) -> Sequence[str]:
        search = form("/search", text_field("Search", "q", request.query.get("q", "")), method="get", button="Search")
        regions = (link(region, "/region", {"name": region}) for region in REGIONS)
        return (*regions, link("Recent changes", "/recent"), self.account_links(request), search)

    def _save(self, slug: str, author: str, summary: str, body: str) -> None:
        number = 1 + len(self.all("SELECT 1 FROM revisions WHERE slug = ?", slug))
        self.all("INSERT INTO revisions VALUES (?,?,?,?,?)", slug, number, author, summary, body)
        self.all("UPDATE articles SET body = ? WHERE slug = ?", body, slug)

    def _home(self, request: SiteRequest) -> SiteResponse:
        count = self.one("SELECT count(*) AS n FROM articles")["n"]
        told = f"{count} articles about the towns of Verania. Everybody may read them; editors log in to change them."
        regions = element("ul", *(element("li", link(region, "/region", {"name": region})) for region in REGIONS))
        return self.page(request, "Main page", element("p", told), element("h2", "Regions"), regions)

    def _search(self, request: SiteRequest) -> SiteResponse:
        words = request.query.get("q", "").strip()
        sql = "SELECT * FROM articles WHERE title LIKE ? OR body LIKE ? ORDER BY title"
        found = self.paged(request, _PAGE, sql, f"%{words}%", f"%{words}%")
        hits = element("ul", *(element("li", link(row["title"], f"/wiki/{row['slug']}")) for row in found.rows))
        pages = page_links("/search", {"q": words}, found.page, found.pages)
        return self.page(request, "Search", element("p", f"{found.total} articles with “{words}”"), hits, pages)

    def _region(self, request: SiteRequest) -> SiteResponse:
        name = request.query.get("name", "")
        found = self.paged(request, _PAGE, "SELECT * FROM articles WHERE region = ? ORDER BY title", name)
        if not found.total:
            raise SiteError(HTTPStatus.NOT_FOUND, "There is no such region.")
        towns = element("ul", *(element("li", link(row["title"], f"/wiki/{row['slug']}")) for row in found.rows))
        pages = page_links("/region", {"name": name}, found.page, found.pages)
        return self.page(request, name, element("p", f"{found.total} towns"), towns, pages)

    def _recent(self, request: SiteRequest) -> SiteResponse:
        sql = "SELECT title, revisions.* FROM revisions JOIN articles USING (slug) ORDER BY revisions.rowid DESC"
        found = self.paged(request, _PAGE, sql)
        rows = (
            (link(row["title"], f"/wiki/{row['slug']}"), str(row["number"]), row["author"], row["summary"])
            for row in found.rows
        )
        pages = page_links("/recent", {}, found.page, found.pages)
        return self.page(request, "Recent changes", table(("Article", "Revision", "Author", "Summary"), rows), pages)

    def _article(self, request: SiteRequest, slug: str) -> SiteResponse:
        row = self.one("SELECT * FROM articles WHERE slug = ?", slug)
        return self.page(request, row["title"], _tabs(slug), _text(row["body"]))

    def _edit_page(self, request: SiteRequest, slug: str) -> SiteResponse:
        self.require_user(request)
        row = self.one("SELECT * FROM articles WHERE slug = ?", slug)
        text = element("textarea", row["body"], name="body", **{"aria-label": "Text"})
        fields = element("label", "Text ", text), text_field("Summary", "summary")
        return self.page(
            request, f"Edit {row['title']}", _tabs(slug), form(f"/wiki/{slug}/edit", *fields, button="Save")
        )

    def _edit(self, request: SiteRequest, slug: str) -> SiteResponse:
        user, row = self.require_user(request), self.one("SELECT * FROM articles WHERE slug = ?", slug)
        body = "\n".join(request.form.get("body", "").split("\r\n")).strip()
        if not body:
            raise SiteError(HTTPStatus.BAD_REQUEST, "An article cannot be empty.")
        if body != row["body"]:
            self._save(slug, user, request.form.get("summary", "").strip(), body)
        return self.redirect(request, f"/wiki/{slug}", "Your changes are saved.")

    def _history(self, request: SiteRequest, slug: str) -> SiteResponse:
        row = self.one("SELECT * FROM articles WHERE slug = ?", slug)
        found = self.all("SELECT * FROM revisions WHERE slug = ? ORDER BY number DESC", slug)
        rows = (
            (
                link(f"Revision {each['number']}", f"/wiki/{slug}/revision/{each['number']}"),
                each["author"],
                each["summary"],
            )
            for each in found
        )
        return self.page(
            request, f"History of {row['title']}", _tabs(slug), table(("Revision", "Author", "Summary"), rows)
        )

    def _revision(self, request: SiteRequest, slug: str, number: str) -> SiteResponse:
        found = self.one("SELECT * FROM revisions WHERE slug = ? AND number = ?", slug, int(number))
        restore = form(f"/wiki/{slug}/restore", hidden_field("number", number), button="Restore this revision")
        told = element("p", f"Revision {number} by {found['author']}: {found['summary']}")
        return self.page(
            request, f"{slug.title()}, revision {number}", _tabs(slug), told, _text(found["body"]), restore
        )

    def _restore(self, request: SiteRequest, slug: str) -> SiteResponse:
        user, number = self.require_user(request), request.number("number")
        found = self.one("SELECT * FROM revisions WHERE slug = ? AND number = ?", slug, number)
        self._save(slug, user, f"restored revision {number}", found["body"])
        return self.redirect(request, f"/wiki/{slug}", f"Revision {number} is restored.")


def _tabs(slug: str) -> Html:
    at = f"/wiki/{slug}"
    return element("p", link("Article", at), " | ", link("Edit", f"{at}/edit"), " | ", link("History", f"{at}/history"))


def _text(body: str) -> Html:
    return element("div", *(element("p", line) for line in body.split("\n")))
