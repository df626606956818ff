import pytest

from coinbook.amounts import Amount, AmountError, parse_amount


def test_amounts_are_added_and_subtracted():
    assert Amount(150) + Amount(275) == Amount(425)
    assert Amount(150) - Amount(275) == Amount(-125)


def test_other_currencies_are_refused():
    with pytest.raises(AmountError):
        Amount(1, "EUR") + Amount(1, "USD")
    with pytest.raises(AmountError):
        Amount(1, "XXX")


@pytest.mark.parametrize(("cents", "text"), [(0, "0.00 EUR"), (5, "0.05 EUR"), (-105, "-1.05 EUR"), (123456, "1234.56 EUR")])
def test_an_amount_is_printed_with_two_decimals(cents, text):
    assert str(Amount(cents)) == text


@pytest.mark.parametrize(
    ("text", "cents"), [("12", 1200), ("12.3", 1230), ("12.34", 1234), ("-0.5", -50), ("+7.05", 705), ("0.00", 0)]
)
def test_an_amount_is_read(text, cents):
    assert parse_amount(text) == Amount(cents)


def test_a_currency_is_read():
    assert parse_amount("3 USD") == Amount(300, "USD")


def test_the_default_currency_counts_without_one():
    assert parse_amount("3", "GBP") == Amount(300, "GBP")
    assert parse_amount("3").currency == "EUR"


@pytest.mark.parametrize("text", ["", "x", "1.234", "1.", "1 EUR x", "--1.x", ".5"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(AmountError):
        parse_amount(text)


def test_shares_add_up():
    assert Amount(100).shares(3) == [Amount(34), Amount(33), Amount(33)]
    assert Amount(101).shares(2) == [Amount(51), Amount(50)]
    assert Amount(2).shares(4) == [Amount(1), Amount(1), Amount(0), Amount(0)]


def test_nobody_gets_no_share():
    with pytest.raises(AmountError):
        Amount(100).shares(0)
