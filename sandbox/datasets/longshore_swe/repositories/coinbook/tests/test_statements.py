from coinbook.amounts import Amount
from coinbook.ledger import Account, Entry
from coinbook.statements import largest_expenses, opening_balance, statement


def account():
    made = Account("cash", overdraft_cents=100_000)
    for day, cents, text in [
        ("2024-02-29", 1000, "wages"),
        ("2024-03-31", -300, "shoes"),
        ("2024-03-01", -50, ""),
        ("2024-03-15", 200, "refund"),
        ("2024-04-01", -25, "bread"),
        ("2024-03-20", -75, "book"),
    ]:
        made.post(Entry(day, Amount(cents), text))
    return made


def test_the_opening_balance_has_all_earlier_months():
    assert opening_balance(account(), "2024-03") == Amount(1000)
    assert opening_balance(account(), "2024-02") == Amount(0)
    assert opening_balance(account(), "2025-01") == Amount(750)


def test_a_statement_has_the_whole_month_in_order():
    assert statement(account(), "2024-03") == [
        "opening 10.00 EUR",
        "2024-03-01 -0.50 EUR 9.50 EUR",
        "2024-03-15 2.00 EUR 11.50 EUR refund",
        "2024-03-20 -0.75 EUR 10.75 EUR book",
        "2024-03-31 -3.00 EUR 7.75 EUR shoes",
        "closing 7.75 EUR",
    ]


def test_a_month_without_entries_opens_and_closes():
    assert statement(account(), "2024-01") == ["opening 0.00 EUR", "closing 0.00 EUR"]


def test_the_largest_expenses_come_first():
    found = largest_expenses(account(), "2024-03", 2)
    assert [entry.text for entry in found] == ["shoes", "book"]
    assert [entry.text for entry in largest_expenses(account(), "2024-03")] == ["shoes", "book", ""]


def test_an_account_keeps_its_order():
    cash = account()
    statement(cash, "2024-03")
    largest_expenses(cash, "2024-03")
    assert [entry.day[5:7] for entry in cash.entries] == ["02", "03", "03", "03", "04", "03"]
