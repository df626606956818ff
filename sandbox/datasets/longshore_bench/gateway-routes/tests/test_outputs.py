"""The file is read by rules of its own; requests on either side of each border are put to it."""

import re
from pathlib import Path

CONF = Path("/app/gateway.conf")
UPSTREAMS = {"web": "10.0.0.10:8080", "api": "10.0.0.20:9000", "files": "10.0.0.30:80"}
HOSTS = [
    "shop.example",
    "www.shop.example",
    "a.old.example",
    "A.b.OLD.example",
    "old.example",
    "x.shop.example",
    "other",
]
SHOP = "https:" + "//shop.example/"
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]


def read():
    upstreams, routes = {}, []
    for line in CONF.read_text().splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "upstream":
            _, name, address = words
            assert name not in upstreams
            upstreams[name] = address
        else:
            assert words[0] == "route"
            hosts, path, methods, action = words[1], words[2], words[3], words[4:]
            assert re.fullmatch(r"=?/\S*", path)
            assert re.fullmatch(r"\*|[A-Z]+(,[A-Z]+)*", methods)
            assert action[0] in ("proxy", "status", "redirect")
            assert len(action) == 2 or (action[0] == "proxy" and len(action) == 3)
            assert action[0] != "status" or 400 <= int(action[1]) <= 499
            routes.append((hosts.lower().split(","), path, methods.split(","), action))
    assert all(action[1] in upstreams for *_, action in routes if action[0] == "proxy")
    return upstreams, routes


def fits(route, host, path, method):
    hosts, wanted, methods, _ = route
    if not any(each in ("*", host.lower()) or (each[:2] == "*." and host.lower().endswith(each[1:])) for each in hosts):
        return False
    if methods != ["*"] and method not in methods:
        return False
    return path == wanted[1:] if wanted.startswith("=") else path.startswith(wanted)


def sent(host, path, method="GET"):
    """Return in words what becomes of a request."""
    for route in read()[1]:
        if fits(route, host, path, method):
            kind, where, *prefix = route[3]
            if kind != "proxy":
                return " ".join(route[3])
            if prefix:
                path = prefix[0] + path[len(route[1].lstrip("=")) :]
            return f"{where} {path if path.startswith('/') else '/' + path}"
    return "status 404"


def test_web():
    for host in ("shop.example", "WWW.Shop.example"):
        for path in ("/", "/apiary", "/static", "/Static/x", "/loginx", "/login/", "/x/api/y", "/api2/v1"):
            for method in METHODS:
                assert sent(host, path, method) == f"web {path}", (host, path)
    assert sent("www.shop.example", "/api/x") == "web /api/x"
    assert sent("shop.example", "/login") == "web /login"
    for host in ("other", "old.example", "x.shop.example", "shop.example.org", "xold.example"):
        assert sent(host, "/") == sent(host, "/static/a") == sent(host, "/api/x") == "status 404", host


def test_api():
    for method in METHODS:
        assert sent("shop.example", "/api", method) == "api /"
        assert sent("shop.example", "/api/", method) == "api /"
        assert sent("shop.example", "/api/v2/users", method) == "api /v2/users"
        assert sent("shop.example", "/api/v10", method) == "api /v10"
        assert sent("shop.example", "/api/admin", method) == "api /admin"
        assert sent("shop.example", "/api/administrators", method) == "api /administrators"


def test_old_api_and_admin():
    for method in METHODS:
        for path in ("/api/v1", "/api/v1/", "/api/v1/users"):
            assert sent("shop.example", path, method) == "status 410"
        wanted = "api /admin/x/y" if method in ("GET", "HEAD") else "status 403"
        assert sent("shop.example", "/api/admin/x/y", method) == wanted
    assert sent("shop.example", "/api/admin/") == "api /admin/"
    assert sent("www.shop.example", "/api/v1") == "web /api/v1"


def test_static():
    for host in ("shop.example", "www.shop.example"):
        for method in METHODS:
            good = method in ("GET", "HEAD")
            assert sent(host, "/static/css/a.css", method) == ("files /assets/css/a.css" if good else "status 405")
            assert sent(host, "/static/", method) == ("files /assets/" if good else "status 405")


def test_redirects():
    for method in METHODS:
        assert sent("www.shop.example", "/login", method) == f"redirect {SHOP}login"
        for host in ("a.old.example", "A.b.OLD.example"):
            assert sent(host, "/static/x", method) == f"redirect {SHOP}"
    assert sent("old.example", "/login") == "status 404"


def test_the_file_is_valid_and_has_nothing_idle():
    upstreams, routes = read()
    assert upstreams == UPSTREAMS
    assert routes
    stems = {route[1].lstrip("=") for route in routes}
    paths = {stem + more for stem in stems for more in ("", "x", "/", "/x")} | {"/"}
    taken = set()
    for host in HOSTS:
        for path in paths:
            for method in METHODS:
                first = next((number for number, each in enumerate(routes) if fits(each, host, path, method)), None)
                taken.add(first)
    assert set(range(len(routes))) <= taken, "a route is never reached"
