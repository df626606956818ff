"""ledger.py is run on ledgers that are made here."""

from pathlib import Path

import nobody

HEAD = "H20240229"


def signed(value, width=11):
    digits = f"{abs(value):0{width}d}"
    return digits[:-1] + ("}JKLMNOPQR" if value < 0 else "{ABCDEFGHI")[int(digits[-1])]


def account(number, owner="Owner", currency="EUR", opening=0):
    return f"A{number:08d}{owner:20}{currency}{signed(opening)}"


def transaction(number, at="120000", amount=0, text="x"):
    return f"T{number:08d}{at}{signed(amount)}{text}"


def end(count, total):
    return f"Z{count:08d}{signed(total, 15)}"


def run(*lines):
    made = nobody.folder({"ledger": "".join(f"{each}\n" for each in lines).encode("latin-1")})
    done = nobody.run("python3", "/app/ledger.py", made / "ledger", made / "deep/out")
    return done, made / "deep/out"


def tables(*lines, code=0):
    done, out = run(*lines)
    assert (done.returncode, done.stdout) == (code, ["ok\n", "totals differ\n"][code]), done.stderr
    return [nobody.read(out / f"{name}.csv").split("\n") for name in ("accounts", "transactions", "rejected")]


def test_example():
    done, out = run(*Path("/app/example.txt").read_text("latin-1").splitlines())
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert nobody.read(out / "accounts.csv") == (
        "account,owner,currency,opening,transactions,closing\n"
        '00000017,"Kühn, Söhne & Co",EUR,1000.00,2,1876.56\n'
        "00000042,Berg,USD,-0.05,1,-50.05\n"
    )
    assert nobody.read(out / "transactions.csv") == (
        "account,at,amount,text\n00000017,2024-02-29T08:30:00,1000.01,refund\n00000017,2024-02-29T12:00:00,-123.45,Fee\n"
        '00000042,2024-02-29T23:59:58,-50.00,"Rent ""March"""\n'
    )
    assert nobody.read(out / "rejected.csv") == "line,reason\n7,account\n8,kind\n"


def test_signs():
    fields = ["0000000000}", "0000000000{", "00000000007", "0000000001J", "9999999999I", "9999999999R", "0000000000A"]
    lines = [f"T{1:08d}{number:06d}{each}" for number, each in enumerate(fields)]
    total = 7 - 11 + 1
    _, found, rejected = tables(HEAD, account(1), *lines, end(8, total))
    assert [row.split(",")[2] for row in found[1:-1]] == [
        *("0.00", "0.00", "0.07", "-0.11", "999999999.99", "-999999999.99", "0.01"),
    ]
    assert rejected == ["line,reason", ""]


def test_accounts_and_order():
    lines = [
        transaction(5, "230000", 100, "late"),
        transaction(3, "100000", -5, "second"),
        account(5, opening=-100),
        transaction(5, "010000", -1, "early"),
        transaction(3, "100000", 5, "again"),
        account(3, opening=7),
        account(4),
    ]
    accounts, transactions, _ = tables(HEAD, *lines, end(7, 99))
    assert accounts[1:-1] == [
        "00000003,Owner,EUR,0.07,2,0.07",
        "00000004,Owner,EUR,0.00,0,0.00",
        "00000005,Owner,EUR,-1.00,2,-0.01",
    ]
    day = "2024-02-29T"
    assert transactions[1:-1] == [
        *(f"00000003,{day}10:00:00,-0.05,second", f"00000003,{day}10:00:00,0.05,again"),
        *(f"00000005,{day}01:00:00,-0.01,early", f"00000005,{day}23:00:00,1.00,late"),
    ]


def test_csv_and_encoding():
    lines = [
        account(1, '  "Ärger", §'),
        account(2, "  lead\u00a0"),
        account(3, ""),
        transaction(1, text="a;b'c\td ÿ"),
        transaction(1, text="x" * 20 + "   "),
    ]
    accounts, transactions, _ = tables(HEAD + "   ", *lines, end(5, 0) + " ")
    assert accounts[1:-1] == [
        *(
            '00000001,"  ""Ärger"", §",EUR,0.00,2,0.00',
            "00000002,  lead\u00a0,EUR,0.00,0,0.00",
            "00000003,,EUR,0.00,0,0.00",
        ),
    ]
    assert [row.split(",")[3] for row in transactions[1:-1]] == ["a;b'c\td ÿ", "x" * 20]


def test_rejected():
    lines = [
        account(1),  # 2
        "",
        HEAD,
        end(0, 0),
        "t" + transaction(1)[1:],
        account(1, opening=500),  # 7: twice
        account(2, currency="EuR"),
        account(2)[:-1] + "S",
        account(2)[:20],
        account(2) + "x",
        transaction(2),  # 12: account
        transaction(1, "240000"),
        transaction(1, "126000"),
        transaction(1, "120060"),
        transaction(1).replace("T00000001", "T0000000 "),
        transaction(1)[:26].replace("{", "-"),
        transaction(1, text="y" * 21),
        transaction(1)[:26],  # 19: good, without a text
        transaction(1, amount=3).replace("T", " T", 1),
    ]
    accounts, transactions, rejected = tables(HEAD, *lines, end(4, 0))
    assert accounts[1:-1] == ["00000001,Owner,EUR,0.00,1,0.00"]
    assert transactions[1:-1] == ["00000001,2024-02-29T12:00:00,0.00,"]
    reasons = {**dict.fromkeys(range(3, 7), "kind"), 7: "twice", **dict.fromkeys(range(8, 12), "field"), 12: "account"}
    reasons |= {**dict.fromkeys(range(13, 19), "field"), 20: "kind"}
    assert rejected[1:-1] == [f"{number},{reason}" for number, reason in sorted(reasons.items())]


def test_totals():
    lines = [HEAD, account(1), transaction(1, amount=5), transaction(9, amount=-7)]
    accounts, *_ = tables(*lines, end(3, -2))
    assert accounts[1] == "00000001,Owner,EUR,0.00,1,0.05"
    tables(*lines, end(3, 5), code=1)
    tables(*lines, end(2, -2), code=1)
    tables(*lines, "Z00000003" + "0" * 13 + "0K")


def test_without_head_or_end():
    good = [HEAD, account(1), end(1, 0)]
    done, out = run(*good)
    assert (done.returncode, (out / "accounts.csv").exists()) == (0, True)
    for lines in (
        good[1:],
        good[:-1],
        ["H20230229", *good[1:]],
        [*good[:-1], "Z1"],
        ["x", *good],
        [*good, "x"],
        [HEAD],
        [""],
    ):
        done, out = run(*lines)
        assert (done.returncode, done.stdout) == (2, ""), lines
        assert done.stderr
        assert not out.exists()
