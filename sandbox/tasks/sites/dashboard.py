"""The dashboard of a machine park: lists of machines and incidents, work on incidents, and a JSON API.

Standard library only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import ClassVar

from sandbox.tasks.sites.dashboard_data import (
    OPERATORS,
    REGIONS,
    SEVERITIES,
    STATUSES,
    TEAMS,
    make_incidents,
    make_machines,
)
from sandbox.tasks.sites.html_elements import choice_field, element, form, link, page_links, table, text_field
from sandbox.tasks.sites.web_app import Route, SiteError, SiteRequest, SiteResponse, WebApp, json_response

_SCHEMA = """
CREATE TABLE users (name TEXT PRIMARY KEY, password TEXT);
CREATE TABLE machines (name TEXT PRIMARY KEY, region TEXT, team TEXT, status TEXT, cpu_percent INTEGER,
    memory_gb INTEGER, uptime_days INTEGER);
CREATE TABLE incidents (id INTEGER PRIMARY KEY, title TEXT, machine TEXT, team TEXT, severity TEXT, status TEXT,
    assignee TEXT);
CREATE TABLE comments (incident INTEGER, author TEXT, text TEXT);
"""
_PAGE = 12
_MACHINES = "SELECT * FROM machines WHERE (? = '' OR region = ?) AND (? = '' OR team = ?) AND (? = '' OR status = ?)"
_INCIDENTS = "SELECT * FROM incidents WHERE (? = '' OR status = ?) AND (? = '' OR severity = ?) ORDER BY id"
_SORTS = {
    "": ("Name", "name"),
    "cpu": ("CPU, highest first", "cpu_percent DESC, name"),
    "uptime": ("Uptime", "uptime_days"),
}


class Dashboard(WebApp):
    title: ClassVar[str] = "Park Control"

    def __init__(self, seed: int, secret: str) -> None:
        super().__init__(_SCHEMA, secret)
        self.database.executemany("INSERT INTO users VALUES (?,?)", OPERATORS)
        for machine in make_machines(seed):
            self.all("INSERT INTO machines VALUES (?,?,?,?,?,?,?)", *machine.to_json().values())
        for each in make_incidents(seed):
            row = (each.id, each.title, each.machine, each.team, each.severity, each.status)
            self.all("INSERT INTO incidents VALUES (?,?,?,?,?,?,'')", *row)

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/", self._home),
            Route("GET", "/machines", self._machines),
            Route("GET", r"/machines/([a-z]+-\d+)", self._machine),
            Route("GET", "/incidents", self._incidents),
            Route("GET", r"/incidents/(\d{1,6})", self._incident),
            Route("POST", r"/incidents/(\d{1,6})", self._work),
            Route("GET", "/api", self._api_page),
            Route("GET", "/api/machines", self._api_machines),
            Route("GET", r"/api/machines/([a-z]+-\d+)", self._api_machine),
            Route("GET", "/api/incidents", self._api_incidents),
        )

    def header(self, request: SiteRequest) -> Sequence[str]:
        pages = (("Machines", "/machines"), ("Incidents", "/incidents"), ("API", "/api"))
        return (*(link(text, path) for text, path in pages), self.account_links(request))

    def _home(self, request: SiteRequest) -> SiteResponse:
        count = (
            "SELECT region, count(*) AS n, sum(status = 'down') AS down FROM machines GROUP BY region ORDER BY region"
        )
        rows = (
            (link(row["region"], "/machines", {"region": row["region"]}), str(row["n"]), str(row["down"]))
            for row in self.all(count)
        )
        opened = self.one("SELECT count(*) AS n FROM incidents WHERE status = 'open'")["n"]
        told = element("p", link(f"{opened} open incidents", "/incidents", {"status": "open"}))
        return self.page(request, "Overview", told, table(("Region", "Machines", "Down"), rows))

    def _machines(self, request: SiteRequest) -> SiteResponse:
        query = {key: request.query.get(key, "") for key in ("region", "team", "status", "sort")}
        order = _SORTS.get(query["sort"], _SORTS[""])[1]
        found = self.paged(request, _PAGE, f"{_MACHINES} ORDER BY {order}", *_twice(query, "region", "team", "status"))
        fields = (
            choice_field("Region", "region", _any_of(REGIONS), query["region"]),
            choice_field("Team", "team", _any_of(TEAMS), query["team"]),
            choice_field("Status", "status", _any_of(STATUSES), query["status"]),
            choice_field("Sort by", "sort", [(key, text) for key, (text, _) in _SORTS.items()], query["sort"]),
        )
        rows = (
            (link(row["name"], f"/machines/{row['name']}"), row["region"], row["team"], row["status"], _load(row))
            for row in found.rows
        )
        return self.page(
            request,
            "Machines",
            form("/machines", *fields, method="get", button="Show", inline=True),
            element("p", f"{found.total} machines"),
            table(("Machine", "Region", "Team", "Status", "CPU"), rows),
            page_links("/machines", query, found.page, found.pages),
        )

    def _machine(self, request: SiteRequest, name: str) -> SiteResponse:
        row = self.one("SELECT * FROM machines WHERE name = ?", name)
        facts = [
            ("Region", row["region"]),
            ("Team", row["team"]),
            ("Status", row["status"]),
            ("CPU", _load(row)),
            ("Memory", f"{row['memory_gb']} GB"),
            ("Uptime", f"{row['uptime_days']} days"),
        ]
        return self.page(request, name, table(("", ""), facts))

    def _incidents(self, request: SiteRequest) -> SiteResponse:
        query = {key: request.query.get(key, "") for key in ("status", "severity")}
        found = self.paged(request, _PAGE, _INCIDENTS, *_twice(query, "status", "severity"))
        fields = (
            choice_field("Status", "status", _any_of(("open", "resolved")), query["status"]),
            choice_field("Severity", "severity", _any_of(SEVERITIES), query["severity"]),
        )
        rows = (
            (
                link(f"#{row['id']} {row['title']}", f"/incidents/{row['id']}"),
                row["team"],
                row["severity"],
                row["status"],
            )
            for row in found.rows
        )
        return self.page(
            request,
            "Incidents",
            form("/incidents", *fields, method="get", button="Show", inline=True),
            element("p", f"{found.total} incidents"),
            table(("Incident", "Team", "Severity", "Status"), rows),
            page_links("/incidents", query, found.page, found.pages),
        )

    def _incident(self, request: SiteRequest, number: str) -> SiteResponse:
        row = self.one("SELECT * FROM incidents WHERE id = ?", int(number))
        said = self.all("SELECT * FROM comments WHERE incident = ?", row["id"])
        facts = [
            ("Machine", link(row["machine"], f"/machines/{row['machine']}")),
            ("Team", row["team"]),
            ("Severity", row["severity"]),
            ("Status", row["status"]),
            ("Assignee", row["assignee"] or "nobody"),
        ]
        operators = [("", "Nobody"), *((name, name) for name, _ in OPERATORS)]
        fields = (
            choice_field("Status", "status", [(each, each) for each in ("open", "resolved")], row["status"]),
            choice_field("Severity", "severity", [(each, each) for each in SEVERITIES], row["severity"]),
            choice_field("Assignee", "assignee", operators, row["assignee"]),
            text_field("Comment", "comment"),
        )
        return self.page(
            request,
            f"#{row['id']} {row['title']}",
            table(("", ""), facts),
            element("h2", "Comments"),
            table(("Author", "Comment"), ((each["author"], each["text"]) for each in said)),
            element("h2", "Work on it"),
            form(f"/incidents/{row['id']}", *fields, button="Save"),
        )

    def _work(self, request: SiteRequest, number: str) -> SiteResponse:
        user, row = self.require_user(request), self.one("SELECT * FROM incidents WHERE id = ?", int(number))
        status, severity = (request.form.get(key, row[key]) for key in ("status", "severity"))
        assignee = request.form.get("assignee", row["assignee"])
        if status not in {"open", "resolved"} or severity not in SEVERITIES or assignee not in {"", *dict(OPERATORS)}:
            raise SiteError(HTTPStatus.BAD_REQUEST, "There is no such status, severity or assignee.")
        values = (status, severity, assignee, row["id"])
        self.all("UPDATE incidents SET status = ?, severity = ?, assignee = ? WHERE id = ?", *values)
        if comment := request.form.get("comment", "").strip():
            self.all("INSERT INTO comments VALUES (?,?,?)", row["id"], user, comment)
        return self.redirect(request, f"/incidents/{row['id']}", "Saved.")

    def _api_page(self, request: SiteRequest) -> SiteResponse:
        calls = [
            (link("/api/machines", "/api/machines"), "region, team, status, page: machines, 12 a page"),
            ("/api/machines/NAME", "one machine"),
            (link("/api/incidents", "/api/incidents"), "status, severity, page: incidents, 12 a page"),
        ]
        return self.page(
            request, "API", element("p", "GET, answers are JSON."), table(("Address", "Parameters"), calls)
        )

    def _api_machines(self, request: SiteRequest) -> SiteResponse:
        given = _twice(request.query, "region", "team", "status")
        return self._api_list(request, "machines", f"{_MACHINES} ORDER BY name", given)

    def _api_incidents(self, request: SiteRequest) -> SiteResponse:
        return self._api_list(request, "incidents", _INCIDENTS, _twice(request.query, "status", "severity"))

    def _api_list(self, request: SiteRequest, name: str, sql: str, values: Sequence[str]) -> SiteResponse:
        found = self.paged(request, _PAGE, sql, *values)
        rows = [dict(row) for row in found.rows]
        return json_response({name: rows, "page": found.page, "pages": found.pages, "total": found.total})

    def _api_machine(self, request: SiteRequest, name: str) -> SiteResponse:
        del request
        return json_response(dict(self.one("SELECT * FROM machines WHERE name = ?", name)))


def _load(row: sqlite3.Row) -> str:
    return f"{row['cpu_percent']} %"


def _any_of(values: Sequence[str]) -> list[tuple[str, str]]:
    return [("", "Any"), *((value, value) for value in values)]


def _twice(query: Mapping[str, str], *names: str) -> list[str]:
    """Return each value twice: once to see whether it is given, once to compare."""
    return [query.get(name, "") for name in names for _ in range(2)]
