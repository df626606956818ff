"""If these fail, a site of ours breaks under an agent's input, or shows its state without its secret."""

from __future__ import annotations

import json
import socket
from http import HTTPStatus
from threading import Thread
from typing import Any

import pytest

from sandbox.tasks.sites.serve import SITES
from sandbox.tasks.sites.shop_data import CUSTOMERS, make_products, total_cents
from sandbox.tasks.sites.web_app import SiteResponse, WebApp, serve_app
from sandbox.tasks.sites.wiki_data import make_towns

SECRET = "s3cret"


class Visitor:
    """One browser of a site, without scripts: it follows redirects."""

    def __init__(self, app: WebApp, name: str = "0" * 32) -> None:
        self.app, self.name = app, name

    def get(self, target: str) -> SiteResponse:
        return self._follow(self.app.answer("GET", target, "", self.name))

    def post(self, target: str, form: str) -> SiteResponse:
        return self._follow(self.app.answer("POST", target, form, self.name))

    def _follow(self, response: SiteResponse) -> SiteResponse:
        return self.get(response.location) if response.location else response


def state(app: WebApp, sql: str) -> list[list[Any]]:
    return json.loads(app.answer_state(SECRET, json.dumps({"sql": sql})).body)["rows"]


@pytest.mark.parametrize("name", SITES)
def test_a_site_is_the_same_for_the_same_seed_and_another_for_another(name: str):
    pages = {"shop": "/search", "wiki": "/recent", "dashboard": "/machines"}
    shown = [Visitor(SITES[name](seed, SECRET)).get(pages[name]).body for seed in (1, 1, 2)]
    assert shown[0] == shown[1] != shown[2]


@pytest.mark.parametrize("name", SITES)
def test_the_state_needs_the_secret_and_is_only_read(name: str):
    app = SITES[name](1, SECRET)
    assert app.answer_state("", "{}").status is HTTPStatus.NOT_FOUND
    for body in ("no JSON", "{}", '{"sql": "DELETE FROM users"}', '{"sql": "nonsense"}'):
        assert app.answer_state(SECRET, body).status is HTTPStatus.BAD_REQUEST
    assert state(app, "SELECT count(*) FROM users") == [[2]]


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize(
    "target", ["/nowhere", "/%00", "/wiki/zzz", "/product/999999", "/incidents/1", "/api/machines/x-1"]
)
def test_what_is_not_there_is_a_page_that_says_so(name: str, target: str):
    assert Visitor(SITES[name](1, SECRET)).get(target).status is HTTPStatus.NOT_FOUND


def test_a_customer_pays_the_goods_less_the_coupon_and_shipping():
    app = SITES["shop"](1, SECRET)
    one, two = [product for product in make_products(1) if product.stock >= 3][:2]
    visitor = Visitor(app)
    visitor.post("/cart/add", f"product={one.id}&quantity=2")
    visitor.post("/cart/add", f"product={one.id}&quantity=1")
    visitor.post("/cart/add", f"product={two.id}&quantity=1")
    visitor.post("/cart/change", f"product={two.id}&quantity=0")
    assert "There is no such coupon" in visitor.post("/cart/coupon", "coupon=FREE").body
    visitor.post("/cart/coupon", "coupon=loyal20")
    assert "wrong" in visitor.post("/login", "user=mira&password=x").body
    assert "Welcome, mira" in visitor.post("/login", "user=mira&password=harbour7&next=/checkout").body
    assert "Thank you" in visitor.post("/checkout", "address=Pier+1").body
    total = total_cents(3 * one.price_cents, 20)
    assert state(app, "SELECT * FROM orders") == [[1, "mira", "Pier 1", "LOYAL20", total]]
    assert state(app, "SELECT * FROM order_lines") == [[1, one.id, 3, one.price_cents]]
    assert [one.id, one.stock - 3] in state(app, "SELECT id, stock FROM products")
    assert Visitor(app, "1" * 32).get("/orders/1").body.count("Log in first")


@pytest.mark.parametrize("quantity", ["0", "-1", "99", "1e3", "x", "9" * 20])
def test_a_wrong_quantity_leaves_the_cart_empty(quantity: str):
    app = SITES["shop"](1, SECRET)
    product = next(product for product in make_products(1) if product.stock)
    refused = Visitor(app).post("/cart/add", f"product={product.id}&quantity={quantity}")
    assert refused.status is HTTPStatus.BAD_REQUEST
    assert state(app, "SELECT count(*) FROM carts") == [[0]]


def test_an_article_has_a_history_that_can_be_restored():
    app, town = SITES["wiki"](1, SECRET), make_towns(1)[0]
    visitor, at = Visitor(app), f"/wiki/{town.slug}"
    assert "Log in first" in visitor.post(f"{at}/edit", "body=x").body
    visitor.post("/login", "user=liv&password=quarry5")
    assert "&lt;b&gt;new&lt;/b&gt;" in visitor.post(f"{at}/edit", "body=%3Cb%3Enew%3C/b%3E&summary=s").body
    visitor.post(f"{at}/edit", "body=%3Cb%3Enew%3C/b%3E&summary=unchanged")
    visitor.post(f"{at}/restore", "number=1")
    revisions = state(app, "SELECT slug, author, body FROM revisions ORDER BY number DESC")
    newest = [rest for slug, *rest in revisions if slug == town.slug]
    assert newest[:2] == [["liv", town.revisions[0].body], ["liv", "<b>new</b>"]]
    assert len(newest) == len(town.revisions) + 2


def test_lists_have_pages_and_links_to_the_next():
    visitor = Visitor(SITES["dashboard"](1, SECRET))
    first, last = visitor.get("/machines?status=healthy"), visitor.get("/machines?page=3")
    assert "/machines?status=healthy&amp;page=2" in first.body
    assert ("Previous page" in last.body, "Next page" in last.body) == (True, False)
    listed = json.loads(visitor.get("/api/machines?page=2").body)
    assert (len(listed["machines"]), listed["pages"], listed["total"]) == (12, 3, 36)
    assert visitor.get("/api/machines?page=0").status is HTTPStatus.BAD_REQUEST


def test_a_log_in_leads_to_a_page_of_the_site_alone():
    visitor = Visitor(SITES["wiki"](1, SECRET))
    for target in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
        answer = visitor.app.answer("POST", "/login", f"user=liv&password=quarry5&next={target}", visitor.name)
        assert answer.location == "/"


HEAD = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
LOGIN = f"user={CUSTOMERS[0][0]}&password={CUSTOMERS[0][1]}&next=/%E2%9C%93"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (f"GET //[x {HEAD}", 404),
        (f"GET http://[x {HEAD}", 400),
        (f"POST /-/state {HEAD}X-Secret: é\r\n", 404),
        (f"POST / {HEAD}Content-Length: ²\r\n", 413),
        (f"POST / {HEAD}Content-Length: {'9' * 5000}\r\n", 413),
        (f"POST /login {HEAD}Content-Length: {len(LOGIN)}\r\n\r\n{LOGIN}", 303),
    ],
)
def test_every_request_has_an_answer(request_text: str, status: int):
    with serve_app(SITES["shop"](1, SECRET), ("127.0.0.1", 0)) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) as connection:
            connection.sendall(f"{request_text}\r\n".encode("latin-1"))
            answered = connection.makefile("rb").readline()
        server.shutdown()
    assert answered.split()[1:2] == [str(status).encode()]
