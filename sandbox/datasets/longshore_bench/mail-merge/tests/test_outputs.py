"""merge.sh is run on templates and tables that are made here."""

from pathlib import Path

import nobody


def merge(template, table):
    made = nobody.folder({"t t": template, "table": table})
    done = nobody.run("bash", "/app/merge.sh", made / "t t", made / "table", made / "new/out")
    listed = nobody.run("ls", "-A", made / "new/out").stdout.splitlines() if (made / "new/out").exists() else []
    return done, {name: nobody.read(made / "new/out" / name) for name in listed}


def letters(template, table):
    done, found = merge(template, table)
    assert done.returncode == 0, done.stderr
    assert sorted(found) == [f"{number:03}.txt" for number in range(1, len(found) + 1)]
    return [found[name] for name in sorted(found)]


def test_example():
    found = letters(Path("/app/letter.txt").read_text(), Path("/app/table.tsv").read_text())
    end = "Use {{braces}} with care.\n"
    assert found == [
        f"Dear Ann,\nyour ship Rose & Crown may enter at 10:00.\n{end}",
        f"Dear friend,\nwe have no ship of yours.\n{end}",
        f"Dear B\\1 {{{{name}}}},\nwe have no ship of yours.\n{end}",
    ]


def test_values_are_literal():
    values = [
        "a/b&c\\1\\n",
        "$x `y` $(z)",
        "{{b}}",
        "?a x",
        "  lead and tail  ",
        "*",
        "-n",
        "\\{",
        "ü%s",
        "\"'",
        "a|b}}",
    ]
    for value in values:
        assert letters("<{{a}}>{{ b }}<{{a}}>", f"a\tb\n{value}\tB\n") == [f"<{value}>B<{value}>"], value
    assert letters("{{a_1}}{{A}}\\{{a}}{a}{{}}{{ a b }}{ {A}}\\\\", "a_1\tA\n1\t2\n") == [
        "12{{a}}{a}{{}}{{ a b }}{ {A}}\\\\"
    ]


def test_defaults_and_conditions():
    template = (
        "{{a|none at all}}|{{ b |}}\n?a has a {{a}}\n!a has no a\n?a !b a alone\n!a !b neither\n?ab\n ?a x\n? a y\n"
    )
    end = "?ab\n ?a x\n? a y\n"
    assert letters(template, "a\tb\n1\t2\n \t2\n1\t\n\t \t\n".replace("\t \t", "\t ")) == [
        f"1|2\nhas a 1\n{end}",
        f"none at all|2\nhas no a\n{end}",
        f"1|\nhas a 1\na alone\n{end}",
        f"none at all|\nhas no a\nneither\n{end}",
    ]


def test_tables():
    assert letters("{{a}}-{{b}}-{{c}}\n", "a\tb\tc\r\n\t\tx\r\n\r\n1\n\n\ty") == ["--x\n", "1--\n", "-y-\n"]
    many = "".join(f"{number}\n" for number in range(1, 1002))
    found = merge("{{n}}", f"n\n{many}")[1]
    assert len(found) == 1001
    assert (found["001.txt"], found["999.txt"], found["1001.txt"]) == ("1", "999", "1001")
    assert letters("text\r\n{{a}}", "a\nx") == ["text\r\nx"]
    assert letters("{{a}}", "a\n") == []


def test_errors():
    assert letters("{{a}}", "a\tb\n1\t2\n") == ["1"]
    for template in ("{{a}} {{zz}}", "?zz x\n", "!a {{zz|d}}\n", "?a ?zz y\n"):
        done, found = merge(template, "a\nx\n")
        assert (done.returncode, found) == (1, {}), template
        assert "zz" in done.stderr
    done, found = merge("{{a}}", "a\tb\n1\t2\n\n1\t2\t3\n1\n")
    assert (done.returncode, found) == (1, {})
    assert "line 4" in done.stderr
    assert merge("{{b}}", "a\n")[0].returncode == 1
