"""Families of tasks in the shop."""

from __future__ import annotations

import random
from types import MappingProxyType
from urllib.parse import quote_plus

from sandbox.tasks.formats.liveweb.draft import WebTaskDraft, WebTaskFamily, click, go_to, log_in, require, type_text
from sandbox.tasks.sites.shop_data import (
    CATEGORIES,
    COUPONS,
    CUSTOMERS,
    Product,
    format_price,
    make_products,
    total_cents,
)

_SITE = "shop"
_ADDRESSES = ("Pier 4, Aune", "Mill Lane 12, Brisk", "Old Square 7, Drau")


def _in_category(products: list[Product], category: str) -> list[Product]:
    return [product for product in products if product.category == category]


def _distinct(products: list[Product]) -> list[Product]:
    """Return the products in stock whose name is part of no other's."""
    names = [product.name for product in products]
    return [each for each in products if each.stock >= 3 and sum(each.name in name for name in names) == 1]


def _cheapest(rng: random.Random, seed: int) -> WebTaskDraft:
    category = rng.choice(CATEGORIES)
    best = min(_in_category(make_products(seed), category), key=lambda product: product.price_cents)
    return WebTaskDraft(
        site=_SITE,
        question=f"What is the name of the cheapest product in the category {category}?",
        answer={"exact": best.name},
        actions=(go_to(_SITE), click("link", category), go_to(_SITE, "search", category=category, sort="price")),
    )


def _count_colour(rng: random.Random, seed: int) -> WebTaskDraft:
    products = make_products(seed)
    category, colour = rng.choice(CATEGORIES), rng.choice(products).colour
    count = sum(product.colour == colour for product in _in_category(products, category))
    require(count)
    return WebTaskDraft(
        site=_SITE,
        question=f"How many products of the category {category} are {colour}? Mind that the list has several pages.",
        answer={"number": count},
        actions=(go_to(_SITE, "search", category=category), click("link", "Next page")),
    )


def _out_of_stock(rng: random.Random, seed: int) -> WebTaskDraft:
    category = rng.choice(CATEGORIES)
    gone = [product.name for product in _in_category(make_products(seed), category) if not product.stock]
    require(gone)
    return WebTaskDraft(
        site=_SITE,
        question=f"Name all products of the category {category} that are out of stock, with commas between them.",
        answer={"set": gone},
        actions=(go_to(_SITE, "search", category=category), click("link", "Next page")),
    )


def _review(rng: random.Random, seed: int) -> WebTaskDraft:
    product = rng.choice(make_products(seed))
    require(product.reviews)
    review = rng.choice(product.reviews)
    return WebTaskDraft(
        site=_SITE,
        question=f"How many stars did {review.author} give the product {product.name}?",
        answer={"number": review.stars},
        actions=(
            go_to(_SITE),
            type_text("Search", product.name),
            click("button", "Search"),
            click("link", product.name),
        ),
    )


def _buy(rng: random.Random, seed: int) -> WebTaskDraft:
    product, customer, address = (
        rng.choice(_distinct(make_products(seed))),
        rng.choice(CUSTOMERS),
        rng.choice(_ADDRESSES),
    )
    quantity = rng.randint(1, 3)
    lines = "SELECT user, address, product, quantity FROM orders JOIN order_lines ON orderid = id"
    return WebTaskDraft(
        site=_SITE,
        question=(
            f"Log in as {customer[0]} with the password {customer[1]}, and order {quantity} of {product.name} (and "
            f"nothing else) to the address: {address}"
        ),
        state=((lines, [[customer[0], address, product.id, quantity]]),),
        actions=(
            *log_in(_SITE, customer, f"search?q={quote_plus(product.name)}"),
            click("link", product.name),
            type_text("Quantity", str(quantity)),
            click("button", "Add to cart"),
            click("link", "Go to checkout"),
            type_text("Address", address),
            click("button", "Place order"),
        ),
    )


def _total_with_coupon(rng: random.Random, seed: int) -> WebTaskDraft:
    (one, two), (code, percent) = rng.sample(_distinct(make_products(seed)), 2), rng.choice(COUPONS)
    goods = 2 * one.price_cents + two.price_cents
    total = format_price(total_cents(goods, percent)).removeprefix("€")
    return WebTaskDraft(
        site=_SITE,
        question=(
            f"Put 2 of {one.name} and 1 of {two.name} into the cart and use the coupon {code}. What is the total with "
            "shipping, in euros?"
        ),
        answer={"number": float(total), "tolerance": 0.001},
        state=(
            ("SELECT product, quantity FROM carts ORDER BY product", sorted([[one.id, 2], [two.id, 1]])),
            ("SELECT count(*) FROM orders", [[0]]),
        ),
        actions=(
            go_to(_SITE, f"product/{one.id}"),
            type_text("Quantity", "2"),
            click("button", "Add to cart"),
            go_to(_SITE, f"product/{two.id}"),
            click("button", "Add to cart"),
            type_text("Coupon", code),
            click("button", "Use coupon"),
        ),
    )


SHOP_FAMILIES = MappingProxyType[str, WebTaskFamily](
    {
        "shop-cheapest": _cheapest,
        "shop-count-colour": _count_colour,
        "shop-out-of-stock": _out_of_stock,
        "shop-review": _review,
        "shop-buy": _buy,
        "shop-coupon-total": _total_with_coupon,
    }
)
