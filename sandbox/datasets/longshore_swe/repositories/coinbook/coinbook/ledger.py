"""Accounts, and the entries that change their balances."""

from coinbook.amounts import Amount, AmountError


class LedgerError(Exception):
    """An entry cannot be made."""


class Entry:
    """One change of an account: the day (``2024-03-31``), the amount, a text."""

    def __init__(self, day, amount, text=""):
        self.day = day
        self.amount = amount
        self.text = text


class Account:
    """An account with entries in the order in which they were made."""

    def __init__(self, name, currency="EUR", overdraft_cents=0):
        self.name = name
        self.currency = currency
        self.overdraft_cents = overdraft_cents
        """How far the balance may go below zero."""
        self.entries = []
        self.closed = False

    @property
    def balance(self):
        return Amount(sum(entry.amount.cents for entry in self.entries), self.currency)

    def post(self, entry):
        """Add an entry.  Raises LedgerError for a closed account, another currency, or too little money."""
        if self.closed:
            raise LedgerError(f"{self.name} is closed")
        try:
            after = self.balance + entry.amount
        except AmountError as error:
            raise LedgerError(f"{self.name}: {error}") from error
        if entry.amount.cents < 0 and after.cents < -self.overdraft_cents:
            raise LedgerError(f"{self.name} has only {self.balance}")
        self.entries.append(entry)

    def close(self):
        """Close the account.  Raises LedgerError while there is money, or debt, on it."""
        if self.balance.cents:
            raise LedgerError(f"{self.name} still has {self.balance}")
        self.closed = True


def transfer(source, target, amount, day, text=""):
    """Move an amount above zero from one account to another: both entries are made, or none."""
    if amount.cents <= 0:
        raise LedgerError(f"cannot transfer {amount}")
    if target.closed or target.currency != amount.currency:
        raise LedgerError(f"{target.name} does not take {amount}")
    source.post(Entry(day, Amount(-amount.cents, amount.currency), text))
    target.post(Entry(day, amount, text))


def post_lines(account, lines):
    """Post entries written as ``2024-03-31;12.50 EUR;coffee``, and return the lines that could not be, with why."""
    from coinbook.amounts import parse_amount

    refused = []
    for line in lines:
        try:
            day, amount, text = line.split(";", 2)
            account.post(Entry(day, parse_amount(amount, account.currency), text))
        except (ValueError, LedgerError) as error:
            refused.append((line, str(error)))
    return refused
