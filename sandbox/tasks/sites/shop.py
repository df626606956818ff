"""The shop: search, categories, product pages with reviews, a cart with coupons, and orders of customers who logged in.

Standard library only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import ClassVar

from sandbox.tasks.sites.html_elements import (
    Html,
    choice_field,
    element,
    form,
    hidden_field,
    link,
    page_links,
    table,
    text_field,
)
from sandbox.tasks.sites.shop_data import CATEGORIES, COUPONS, CUSTOMERS, format_price, make_products, total_cents
from sandbox.tasks.sites.web_app import Route, SiteError, SiteRequest, SiteResponse, WebApp

_SCHEMA = """
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, category TEXT, colour TEXT, price_cents INTEGER,
    stock INTEGER, stars REAL, reviews INTEGER);
CREATE TABLE reviews (product INTEGER, author TEXT, stars INTEGER, text TEXT);
CREATE TABLE users (name TEXT PRIMARY KEY, password TEXT);
CREATE TABLE coupons (code TEXT PRIMARY KEY, percent INTEGER);
CREATE TABLE carts (session TEXT, product INTEGER, quantity INTEGER, PRIMARY KEY (session, product));
CREATE TABLE orders (id INTEGER PRIMARY KEY, user TEXT, address TEXT, coupon TEXT, total_cents INTEGER);
CREATE TABLE order_lines (orderid INTEGER, product INTEGER, quantity INTEGER, price_cents INTEGER);
"""
_ORDERS = {
    "": ("Our choice", "id"),
    "price": ("Price, lowest first", "price_cents"),
    "price-down": ("Price, highest first", "price_cents DESC"),
    "stars": ("Best rated", "stars DESC, reviews DESC, id"),
}
_PAGE = 6
_MAX_QUANTITY = 20


class Shop(WebApp):
    title: ClassVar[str] = "Harbour Goods"

    def __init__(self, seed: int, secret: str) -> None:
        super().__init__(_SCHEMA, secret)
        for each in make_products(seed):
            row = (each.id, each.name, each.category, each.colour, each.price_cents, each.stock)
            self.all("INSERT INTO products VALUES (?,?,?,?,?,?,?,?)", *row, round(each.stars, 2), len(each.reviews))
            for review in each.reviews:
                self.all("INSERT INTO reviews VALUES (?,?,?,?)", each.id, review.author, review.stars, review.text)
        self.database.executemany("INSERT INTO users VALUES (?,?)", CUSTOMERS)
        self.database.executemany("INSERT INTO coupons VALUES (?,?)", COUPONS)

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/", self._home),
            Route("GET", "/search", self._search),
            Route("GET", r"/product/(\d{1,6})", self._product),
            Route("GET", "/cart", self._cart),
            Route("POST", "/cart/add", self._add),
            Route("POST", "/cart/change", self._change),
            Route("POST", "/cart/coupon", self._coupon),
            Route("GET", "/checkout", self._checkout),
            Route("POST", "/checkout", self._order),
            Route("GET", "/orders", self._orders),
            Route("GET", r"/orders/(\d{1,6})", self._order_page),
        )

    def header(self, request: SiteRequest) -> Sequence[str]:
        count = sum(row["quantity"] for row in self._lines(request))
        search = form("/search", text_field("Search", "q", request.query.get("q", "")), method="get", button="Search")
        return (
            *(link(name, "/search", {"category": name}) for name in CATEGORIES),
            link(f"Cart ({count})", "/cart"),
            link("Orders", "/orders"),
            self.account_links(request),
            search,
        )

    def _home(self, request: SiteRequest) -> SiteResponse:
        best = self.all("SELECT * FROM products WHERE stock > 0 ORDER BY stars DESC, id LIMIT 6")
        hint = "Goods for the house and the way. Orders of €60.00 and more are sent free of charge."
        return self.page(request, "Welcome", element("p", hint), element("h2", "Liked most"), _cards(best))

    def _search(self, request: SiteRequest) -> SiteResponse:
        query = {key: request.query.get(key, "") for key in ("q", "category", "sort")}
        order = _ORDERS.get(query["sort"], _ORDERS[""])[1]
        # the order is one of the constants above
        sql = f"SELECT * FROM products WHERE name LIKE ? AND (? = '' OR category = ?) ORDER BY {order}"  # noqa: S608  one of ours
        found = self.paged(request, _PAGE, sql, f"%{query['q']}%", query["category"], query["category"])
        fields = (
            text_field("Words", "q", query["q"]),
            choice_field(
                "Category", "category", [("", "All"), *((each, each) for each in CATEGORIES)], query["category"]
            ),
            choice_field("Sort by", "sort", [(key, text) for key, (text, _) in _ORDERS.items()], query["sort"]),
        )
        return self.page(
            request,
            query["category"] or "Search",
            form("/search", *fields, method="get", button="Show", inline=True),
            element("p", f"{found.total} products"),
            _cards(found.rows),
            page_links("/search", query, found.page, found.pages),
        )

    def _product(self, request: SiteRequest, number: str) -> SiteResponse:
        product = self.one("SELECT * FROM products WHERE id = ?", int(number))
        reviews = self.all("SELECT * FROM reviews WHERE product = ?", product["id"])
        facts = [
            ("Price", format_price(product["price_cents"])),
            ("Category", link(product["category"], "/search", {"category": product["category"]})),
            ("Colour", product["colour"]),
            ("Stock", f"{product['stock']} in stock" if product["stock"] else "Out of stock"),
            ("Rating", _rating(product)),
        ]
        buy = form(
            "/cart/add",
            hidden_field("product", str(product["id"])),
            text_field("Quantity", "quantity", "1"),
            button="Add to cart",
        )
        said = ((row["author"], f"{row['stars']} of 5", row["text"]) for row in reviews)
        return self.page(
            request,
            product["name"],
            table(("", ""), facts),
            buy if product["stock"] else element("p", "It cannot be ordered at present."),
            element("h2", f"Reviews ({len(reviews)})"),
            table(("Author", "Stars", "Review"), said) if reviews else element("p", "No reviews yet."),
        )

    def _lines(self, request: SiteRequest) -> list[sqlite3.Row]:
        return self.all(
            "SELECT products.*, quantity FROM carts JOIN products ON product = id WHERE session = ? ORDER BY id",
            request.session_id,
        )

    def _sums(self, request: SiteRequest, lines: Iterable[sqlite3.Row]) -> tuple[int, int, str]:
        """Return the sum of the goods, the total in cents, and the coupon."""
        coupon = request.session.values.get("coupon", "")
        found = self.all("SELECT percent FROM coupons WHERE code = ?", coupon)
        goods = sum(row["price_cents"] * row["quantity"] for row in lines)
        return goods, total_cents(goods, found[0]["percent"] if found else 0), coupon

    def _cart(self, request: SiteRequest) -> SiteResponse:
        lines = self._lines(request)
        if not lines:
            return self.page(request, "Cart", element("p", "Your cart is empty."))
        goods, total, coupon = self._sums(request, lines)
        rows = (
            (
                link(row["name"], f"/product/{row['id']}"),
                format_price(row["price_cents"]),
                self._quantity_form(row),
                format_price(row["price_cents"] * row["quantity"]),
            )
            for row in lines
        )
        sums = [
            ("Goods", format_price(goods)),
            ("Coupon", coupon or "none"),
            ("Total with shipping", format_price(total)),
        ]
        return self.page(
            request,
            "Cart",
            table(("Product", "Price", "Quantity", "Sum"), rows),
            table(("", ""), sums),
            form("/cart/coupon", text_field("Coupon", "coupon", coupon), button="Use coupon", inline=True),
            element("p", link("Go to checkout", "/checkout")),
        )

    def _quantity_form(self, row: sqlite3.Row) -> Html:
        fields = hidden_field("product", str(row["id"])), text_field("Quantity", "quantity", str(row["quantity"]))
        return form("/cart/change", *fields, button="Change", inline=True)

    def _add(self, request: SiteRequest) -> SiteResponse:
        product = self.one("SELECT * FROM products WHERE id = ?", request.number("product"))
        there = self.all(
            "SELECT quantity FROM carts WHERE session = ? AND product = ?", request.session_id, product["id"]
        )
        return self._put(request, product, request.number("quantity") + (there[0]["quantity"] if there else 0))

    def _change(self, request: SiteRequest) -> SiteResponse:
        product = self.one("SELECT * FROM products WHERE id = ?", request.number("product"))
        if request.form.get("quantity", "").strip() == "0":
            self.all("DELETE FROM carts WHERE session = ? AND product = ?", request.session_id, product["id"])
            return self.redirect(request, "/cart", f"{product['name']} was removed.")
        return self._put(request, product, request.number("quantity"))

    def _put(self, request: SiteRequest, product: sqlite3.Row, quantity: int) -> SiteResponse:
        if quantity > min(_MAX_QUANTITY, product["stock"]):
            raise SiteError(HTTPStatus.BAD_REQUEST, f"There are not {quantity} of {product['name']} in stock.")
        self.all("INSERT OR REPLACE INTO carts VALUES (?,?,?)", request.session_id, product["id"], quantity)
        return self.redirect(request, "/cart", f"{quantity} × {product['name']} in your cart.")

    def _coupon(self, request: SiteRequest) -> SiteResponse:
        code = request.form.get("coupon", "").strip().upper()
        known = bool(self.all("SELECT 1 FROM coupons WHERE code = ?", code))
        request.session.values["coupon"] = code if known else ""
        return self.redirect(request, "/cart", "The coupon is used." if known else "There is no such coupon.")

    def _checkout(self, request: SiteRequest) -> SiteResponse:
        self.require_user(request)
        lines = self._lines(request)
        if not lines:
            return self.redirect(request, "/cart")
        total = self._sums(request, lines)[1]
        address = form("/checkout", text_field("Address", "address"), button="Place order")
        return self.page(request, "Checkout", element("p", f"Total: {format_price(total)}"), address)

    def _order(self, request: SiteRequest) -> SiteResponse:
        user, lines = self.require_user(request), self._lines(request)
        address = request.form.get("address", "").strip()
        if not lines or not address:
            raise SiteError(HTTPStatus.BAD_REQUEST, "An order needs goods and an address.")
        _, total, coupon = self._sums(request, lines)
        number = self.database.execute(
            "INSERT INTO orders (user, address, coupon, total_cents) VALUES (?,?,?,?)", (user, address, coupon, total)
        ).lastrowid
        for row in lines:
            self.all("INSERT INTO order_lines VALUES (?,?,?,?)", number, row["id"], row["quantity"], row["price_cents"])
            self.all("UPDATE products SET stock = stock - ? WHERE id = ?", row["quantity"], row["id"])
        self.all("DELETE FROM carts WHERE session = ?", request.session_id)
        request.session.values.pop("coupon", None)
        return self.redirect(request, f"/orders/{number}", "Thank you for your order.")

    def _orders(self, request: SiteRequest) -> SiteResponse:
        found = self.all("SELECT * FROM orders WHERE user = ? ORDER BY id", self.require_user(request))
        rows = ((link(f"Order {row['id']}", f"/orders/{row['id']}"), format_price(row["total_cents"])) for row in found)
        shown = table(("Order", "Total"), rows) if found else element("p", "No orders yet.")
        return self.page(request, "Your orders", shown)

    def _order_page(self, request: SiteRequest, number: str) -> SiteResponse:
        user = self.require_user(request)
        order = self.one("SELECT * FROM orders WHERE id = ? AND user = ?", int(number), user)
        lines = self.all("SELECT * FROM order_lines JOIN products ON product = id WHERE orderid = ?", order["id"])
        rows = ((row["name"], str(row["quantity"])) for row in lines)
        told = f"Total {format_price(order['total_cents'])}, to {order['address']}."
        return self.page(request, f"Order {order['id']}", element("p", told), table(("Product", "Quantity"), rows))


def _rating(product: sqlite3.Row) -> str:
    return f"{product['stars']:.2f} of 5 ({product['reviews']} reviews)" if product["reviews"] else "not rated"


def _cards(products: Iterable[sqlite3.Row]) -> Html:
    cards = (
        element(
            "div",
            element("strong", link(row["name"], f"/product/{row['id']}")),
            element("p", f"{format_price(row['price_cents'])}, {row['colour']}"),
            element("p", _rating(row) if row["stock"] else f"{_rating(row)}, out of stock", class_="quiet"),
            class_="card",
        )
        for row in products
    )
    return element("div", *cards, class_="cards")
