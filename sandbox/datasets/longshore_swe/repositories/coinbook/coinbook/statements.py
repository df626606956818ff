"""Statements of an account for one month."""

from coinbook.amounts import Amount


def month_of(day):
    """Return the month of a day: ``2024-03`` of ``2024-03-31``."""
    return day[:7]


def opening_balance(account, month):
    """Return the balance before the month's first entry."""
    before = (entry.amount.cents for entry in account.entries if month_of(entry.day) < month)
    return Amount(sum(before), account.currency)


def statement(account, month):
    """Return the month's lines: the opening balance, each entry with the balance after it, and the closing one."""
    running = opening_balance(account, month)
    lines = [f"opening {running}"]
    chosen = [entry for entry in account.entries if month_of(entry.day) == month]
    for entry in sorted(chosen, key=lambda each: each.day):
        running = running + entry.amount
        lines.append(f"{entry.day} {entry.amount} {running} {entry.text}".rstrip())
    lines.append(f"closing {running}")
    return lines


def largest_expenses(account, month, count=3):
    """Return the month's entries that took most, at most ``count`` of them, the largest first."""
    spent = [entry for entry in account.entries if month_of(entry.day) == month and entry.amount.cents < 0]
    return sorted(spent, key=lambda entry: entry.amount.cents)[:count]
