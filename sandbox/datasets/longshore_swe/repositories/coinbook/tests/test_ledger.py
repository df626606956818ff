import pytest

from coinbook.amounts import Amount
from coinbook.ledger import Account, Entry, LedgerError, post_lines, transfer

DAY = "2024-03-31"


def account(cents=0, **options):
    made = Account("cash", **options)
    if cents:
        made.post(Entry(DAY, Amount(cents)))
    return made


def test_entries_change_the_balance():
    cash = account(500)
    cash.post(Entry(DAY, Amount(-200)))
    assert cash.balance == Amount(300)


def test_the_last_cent_may_be_spent():
    cash = account(500)
    cash.post(Entry(DAY, Amount(-500)))
    assert cash.balance == Amount(0)


def test_an_overdraft_is_refused():
    cash = account(500)
    with pytest.raises(LedgerError, match="5.00 EUR"):
        cash.post(Entry(DAY, Amount(-501)))
    assert cash.balance == Amount(500)


def test_an_overdraft_that_was_agreed_is_not():
    cash = account(overdraft_cents=1000)
    cash.post(Entry(DAY, Amount(-1000)))
    with pytest.raises(LedgerError):
        cash.post(Entry(DAY, Amount(-1)))


def test_money_may_come_to_an_overdrawn_account():
    cash = account(overdraft_cents=1000)
    cash.post(Entry(DAY, Amount(-1000)))
    cash.overdraft_cents = 0
    cash.post(Entry(DAY, Amount(1)))
    assert cash.balance == Amount(-999)


def test_a_closed_account_takes_nothing():
    cash = account()
    cash.close()
    with pytest.raises(LedgerError, match="closed"):
        cash.post(Entry(DAY, Amount(1)))


def test_an_account_with_money_or_debt_stays_open():
    with pytest.raises(LedgerError):
        account(1).close()
    owing = account(overdraft_cents=10)
    owing.post(Entry(DAY, Amount(-10)))
    with pytest.raises(LedgerError):
        owing.close()


def test_a_transfer_makes_both_entries():
    source, target = account(500), account()
    transfer(source, target, Amount(200), DAY, "rent")
    assert (source.balance, target.balance) == (Amount(300), Amount(200))
    assert [entry.text for entry in target.entries] == ["rent"]


def test_a_transfer_that_fails_makes_none():
    source, target = account(500), account()
    for amount in (Amount(501), Amount(0), Amount(-5), Amount(1, "USD")):
        with pytest.raises(LedgerError):
            transfer(source, target, amount, DAY)
    target.close()
    with pytest.raises(LedgerError):
        transfer(source, target, Amount(1), DAY)
    assert (source.balance, len(source.entries)) == (Amount(500), 1)


def test_lines_are_posted():
    cash = account()
    assert post_lines(cash, [f"{DAY};12.50 EUR;coffee; beans", f"{DAY};1;tip"]) == []
    assert cash.balance == Amount(1350)
    assert cash.entries[0].text == "coffee; beans"


def test_lines_that_cannot_be_posted_are_returned():
    cash = account()
    lines = [f"{DAY};x;a", "nothing", f"{DAY};-1;b", f"{DAY};2;c"]
    refused = post_lines(cash, lines)
    assert [line for line, _ in refused] == lines[:3]
    assert all(why for _, why in refused)
    assert cash.balance == Amount(200)
