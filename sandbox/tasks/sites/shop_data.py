"""The goods, customers and coupons of the shop, a function of its seed.  Standard library only."""

from __future__ import annotations

import random
from dataclasses import dataclass

CATEGORIES = ("Kettles", "Lamps", "Backpacks", "Notebooks", "Headphones", "Blankets")
_MAKERS = ("Alder", "Birk", "Corvo", "Dunmore", "Elmet", "Fjord", "Garnet", "Hollis")
_SORTS = ("Classic", "Mini", "Pro", "Travel", "Studio", "Eco", "Duo", "Nova")
_COLOURS = ("red", "blue", "green", "black", "white", "yellow")
_OPINIONS = ("Does what it should.", "Better than I thought.", "The colour is not as shown.", "A gift, much liked.")
_AUTHORS = ("Ada", "Bo", "Chidi", "Dana", "Emre", "Fei", "Gita", "Hugo", "Ines", "Jun")
CUSTOMERS = (("mira", "harbour7"), ("tomas", "lantern3"))
"""Names and passwords."""
COUPONS = (("SPRING10", 10), ("FRIEND15", 15), ("LOYAL20", 20))
"""Codes, and by how many per cent they make an order cheaper."""
SHIPPING_CENTS = 490
FREE_SHIPPING_CENTS = 6000
"""Sum of the goods from which shipping costs nothing."""


@dataclass(frozen=True, slots=True)
class Review:
    author: str
    stars: int
    text: str


@dataclass(frozen=True, slots=True)
class Product:
    id: int
    name: str
    category: str
    colour: str
    price_cents: int
    stock: int
    reviews: tuple[Review, ...]

    @property
    def stars(self) -> float:
        """The mean of the reviews' stars; 0 without a review."""
        return sum(review.stars for review in self.reviews) / len(self.reviews) if self.reviews else 0.0


def make_products(seed: int) -> list[Product]:
    """Return eight to eleven products of each category; no two of a category have one name or one price."""
    rng = random.Random(f"shop {seed}")
    drafts: list[tuple[str, str, int]] = []
    for category in CATEGORIES:
        count = rng.randint(8, 11)
        names = rng.sample([f"{maker} {sort}" for maker in _MAKERS for sort in _SORTS], count)
        prices = rng.sample(range(12, 90), count)
        drafts += [
            (f"{name} {category.removesuffix('s')}", category, price * 100 + rng.choice((0, 50, 90, 95)))
            for name, price in zip(names, prices, strict=True)
        ]
    rng.shuffle(drafts)
    return [
        Product(
            number,
            name,
            category,
            rng.choice(_COLOURS),
            cents,
            rng.choice((0, 0, 3, 5, 8, 12, 20)),
            tuple(
                Review(author, rng.randint(2, 5), rng.choice(_OPINIONS))
                for author in rng.sample(_AUTHORS, rng.randint(0, 6))
            ),
        )
        for number, (name, category, cents) in enumerate(drafts, 1)
    ]


def total_cents(goods_cents: int, percent: int) -> int:
    """Return what an order costs: its goods less the coupon, and shipping."""
    reduced = goods_cents - goods_cents * percent // 100
    return reduced + (0 if reduced >= FREE_SHIPPING_CENTS else SHIPPING_CENTS)


def format_price(cents: int) -> str:
    return f"€{cents // 100}.{cents % 100:02}"
