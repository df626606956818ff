"""pomerge.py is run on translations that are made here."""

from pathlib import Path

import nobody

HEAD = 'msgid ""\nmsgstr "Language: xx\\n"\n'


def merged(old, new):
    """Merge entries without a header, and return what follows the header."""
    made = nobody.folder({"old.po": f"{HEAD}\n{old}", "new.pot": f"{HEAD}\n{new}"})
    done = nobody.run("python3", "/app/pomerge.py", made / "old.po", made / "new.pot")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(HEAD)
    return done.stdout.removeprefix(HEAD).removeprefix("\n")


def whole(old, new):
    made = nobody.folder({"old.po": old, "new.pot": new})
    done = nobody.run("python3", "/app/pomerge.py", made / "old.po", made / "new.pot")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_example():
    old, new, wanted = (Path(f"/app/{name}").read_text() for name in ("old.po", "new.pot", "expected.po"))
    assert whole(old, new) == wanted
    assert wanted.endswith('#~ msgstr "Weg"\n')


def test_header():
    old = (
        '# one\n#\n#  two\n#. x\n#: y\n#, fuzzy, no-wrap\nmsgid ""\nmsgstr ""\n"A: b\\n"\n"POT-Creation-Date: 1 \\\\1\\n"\n'
        '"Z: é\\n"\n'
    )
    new = '# other\n#, fuzzy\nmsgid ""\nmsgstr "X: y\\nPOT-Creation-Date: 2 \\\\2\\n"\n\nmsgid "a"\nmsgstr ""\n'
    assert whole(old, new) == (
        '# one\n#\n#  two\n#, no-wrap\nmsgid ""\nmsgstr ""\n"A: b\\n"\n"POT-Creation-Date: 2 \\\\2\\n"\n"Z: é\\n"\n\n'
        'msgid "a"\nmsgstr ""\n'
    )
    assert whole('msgid ""\nmsgstr "A: b\\n"\n', new).startswith('msgid ""\nmsgstr "A: b\\n"\n\n')


def test_contexts_comments_and_flags():
    old = (
        '# mine\n#. old\n#: old:1\n#, fuzzy, old-flag\n#| msgid "before"\nmsgctxt "c"\nmsgid "a"\nmsgstr "ca"\n\n'
        '#| msgid "stale"\nmsgctxt ""\nmsgid "a"\nmsgstr "empty"\n\nmsgid "b"\nmsgstr "B"\n'
    )
    new = (
        'msgid "a"\nmsgstr ""\n\n#. new\n#. newer\n#: x:1\n#: y:2\n#, c-format, fuzzy, range: 1..2\nmsgctxt "c"\nmsgid "a"\n'
        'msgstr ""\n\nmsgctxt ""\nmsgid "a"\nmsgstr ""\n\n#, x\nmsgid "b"\nmsgstr "ignored"\n'
    )
    assert merged(old, new) == (
        'msgid "a"\nmsgstr ""\n\n# mine\n#. new\n#. newer\n#: x:1\n#: y:2\n#, fuzzy, c-format, range: 1..2\n#| msgid "before"\n'
        'msgctxt "c"\nmsgid "a"\nmsgstr "ca"\n\nmsgctxt ""\nmsgid "a"\nmsgstr "empty"\n\n#, x\nmsgid "b"\nmsgstr "B"\n'
    )


def test_long_strings_and_escapes():
    old = 'msgid "on"\n"e "\n""\n"two"\nmsgstr ""\n"\\tA\\\\n\\"q\\"\\n"\n"B\\n"\n"\\n"\n"C"\n\nmsgid "nl\\n"\nmsgstr "n\\n"\n'
    new = 'msgid ""\n"one two"\nmsgstr ""\n\nmsgid "nl"\n"\\n"\nmsgstr ""\n\nmsgid "x\\n\\n"\nmsgstr ""\n'
    assert merged(old, new) == (
        'msgid "one two"\nmsgstr ""\n"\\tA\\\\n\\"q\\"\\n"\n"B\\n"\n"\\n"\n"C"\n\nmsgid "nl\\n"\nmsgstr "n\\n"\n\n'
        'msgid ""\n"x\\n"\n"\\n"\nmsgstr ""\n'
    )


def test_plurals():
    header = 'msgid ""\nmsgstr "Plural-Forms: nplurals=3; plural=0\\n"\n'
    old = (
        f'{header}\nmsgid "s"\nmsgstr "S"\n\nmsgid "p"\nmsgid_plural "ps"\nmsgstr[0] "P0"\nmsgstr[1] "P1"\nmsgstr[2] "P2"\n\n'
        'msgid "d"\nmsgid_plural "ds"\nmsgstr[0] "D0"\nmsgstr[1] ""\nmsgstr[2] "D2"\n\nmsgid "e"\nmsgstr ""\n'
    )
    new = (
        f'{header}\nmsgid "s"\nmsgid_plural "ss"\nmsgstr[0] ""\nmsgstr[1] ""\n\n#, c\nmsgid "p"\nmsgstr ""\n\nmsgid "d"\n'
        'msgid_plural "other"\nmsgstr[0] ""\n\nmsgid "n"\nmsgid_plural "ns"\nmsgstr[0] ""\nmsgstr[1] ""\n\nmsgid "e"\n'
        'msgid_plural "es"\nmsgstr[0] ""\n'
    )
    assert whole(old, new) == (
        f'{header}\n#, fuzzy\nmsgid "s"\nmsgid_plural "ss"\nmsgstr[0] "S"\nmsgstr[1] ""\nmsgstr[2] ""\n\n#, fuzzy, c\nmsgid "p"\n'
        'msgstr "P0"\n\n#, fuzzy\nmsgid "d"\nmsgid_plural "other"\nmsgstr[0] "D0"\nmsgstr[1] ""\nmsgstr[2] "D2"\n\nmsgid "n"\n'
        'msgid_plural "ns"\nmsgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""\n\nmsgid "e"\nmsgid_plural "es"\nmsgstr[0] ""\n'
        'msgstr[1] ""\nmsgstr[2] ""\n'
    )
    assert merged("", 'msgid "n"\nmsgid_plural "ns"\nmsgstr[0] ""\n') == (
        'msgid "n"\nmsgid_plural "ns"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    )


def test_obsolete():
    old = (
        '# why\n#. x\n#: y:1\n#, fuzzy, c-format\n#| msgid "z"\nmsgctxt "k"\nmsgid "gone"\nmsgstr ""\n"two\\n"\n"lines"\n\n'
        'msgid "never"\nmsgstr ""\n\n# still\n#~ msgid "old"\n#~ msgid_plural "olds"\n#~ msgstr[0] "O"\n#~ msgstr[1] ""\n\n'
        'msgid "last"\nmsgstr "L"\n'
    )
    assert merged(old, 'msgid "a"\nmsgstr ""\n') == (
        'msgid "a"\nmsgstr ""\n\n# why\n#, fuzzy\n#~ msgctxt "k"\n#~ msgid "gone"\n#~ msgstr ""\n#~ "two\\n"\n#~ "lines"\n\n'
        '# still\n#~ msgid "old"\n#~ msgid_plural "olds"\n#~ msgstr[0] "O"\n#~ msgstr[1] ""\n\n#~ msgid "last"\n#~ msgstr "L"\n'
    )


def test_what_fits():
    old = '#~ msgid "a"\n#~ msgstr "obsolete"\n\nmsgid "a"\nmsgstr "live"\n\n# again\n#, fuzzy\n#~ msgid "b"\n#~ msgstr "B"\n'
    new = 'msgid "b"\nmsgstr ""\n\nmsgid "a"\nmsgstr ""\n\nmsgctxt "a"\nmsgid "a"\nmsgstr ""\n'
    assert merged(old, new) == (
        '# again\n#, fuzzy\nmsgid "b"\nmsgstr "B"\n\nmsgid "a"\nmsgstr "live"\n\nmsgctxt "a"\nmsgid "a"\nmsgstr ""\n'
    )
