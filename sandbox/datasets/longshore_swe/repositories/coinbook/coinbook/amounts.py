"""Amounts of money: whole numbers of cents, with the code of their currency."""

CURRENCIES = ("EUR", "USD", "GBP")


class AmountError(ValueError):
    """The text is no amount, or two amounts do not go together."""


class Amount:
    """An amount in cents; two amounts of one currency are added, compared and divided among several."""

    def __init__(self, cents, currency="EUR"):
        if currency not in CURRENCIES:
            raise AmountError(f"unknown currency {currency!r}")
        self.cents = cents
        self.currency = currency

    def __eq__(self, other):
        return isinstance(other, Amount) and (self.cents, self.currency) == (other.cents, other.currency)

    def __hash__(self):
        return hash((self.cents, self.currency))

    def __repr__(self):
        return f"Amount({self.cents}, {self.currency!r})"

    def __str__(self):
        sign = "-" if self.cents < 0 else ""
        whole, rest = divmod(abs(self.cents), 100)
        return f"{sign}{whole}.{rest:02d} {self.currency}"

    def __add__(self, other):
        self._require_same(other)
        return Amount(self.cents + other.cents, self.currency)

    def __sub__(self, other):
        self._require_same(other)
        return Amount(self.cents - other.cents, self.currency)

    def __lt__(self, other):
        self._require_same(other)
        return self.cents < other.cents

    def shares(self, count):
        """Return ``count`` amounts that add up to this one and differ by a cent at most, the larger ones first."""
        if count < 1:
            raise AmountError(f"cannot divide among {count}")
        whole, rest = divmod(self.cents, count)
        return [Amount(whole + (1 if number < rest else 0), self.currency) for number in range(count)]

    def _require_same(self, other):
        if self.currency != other.currency:
            raise AmountError(f"{self.currency} and {other.currency} do not go together")


def parse_amount(text, default_currency="EUR"):
    """Return the amount that ``text`` says: ``12.34 EUR``, ``12``, ``-0.5 USD``, with one or two decimals."""
    words = text.split()
    if not 1 <= len(words) <= 2:
        raise AmountError(f"no amount: {text!r}")
    number, currency = words[0], (words[1] if len(words) == 2 else default_currency)
    negative = number.startswith("-")
    whole, point, rest = number.lstrip("+-").partition(".")
    if not whole.isdecimal() or (point and not (rest.isdecimal() and len(rest) <= 2)):
        raise AmountError(f"no amount: {text!r}")
    cents = int(whole) * 100 + int(rest.ljust(2, "0") or 0)
    return Amount(-cents if negative else cents, currency)
