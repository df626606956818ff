"""bundle.sh is run on scripts that are made here."""

import nobody


def bundle(files, entry="main.sh"):
    made = nobody.folder(files)
    return made, nobody.run("bash", "/app/bundle.sh", made / entry, made / "out.sh", cwd="/")


def bundled(files, entry="main.sh"):
    made, done = bundle(files, entry)
    assert done.returncode == 0, done.stderr
    assert (made / "out.sh").stat().st_mode & 0o7777 == 0o755
    return nobody.read(made / "out.sh")


def test_the_example_is_bundled():
    assert nobody.read("/app/dist/tool.sh") == (
        "#!/bin/bash\nset -e\n# logging\nlog() { printf '[tool] %s\\n' \"$*\"; }\n"
        'add() { log adding >&2; echo $(($1 + $2)); }\n\nlog "sum: $(add "$1" "$2")"\n'
    )
    done = nobody.run("bash", "/app/dist/tool.sh", "20", "22")
    assert (done.returncode, done.stdout) == (0, "[tool] sum: 42\n")


def test_nested_files_come_in_once():
    files = {
        "main.sh": "#!/bin/sh\n. lib/a.sh\n. lib/b.sh\n. lib/../lib/a.sh\n. ./main.sh\necho main\n",
        "lib/a.sh": "#!/bin/sh\necho a\n. deep/c.sh\n",
        "lib/b.sh": "source deep/c.sh\n. a.sh\necho b\n#! not the first\n",
        "lib/deep/c.sh": ". ../b.sh\n. ../../main.sh\necho c\n",
    }
    assert bundled(files) == "#!/bin/sh\necho a\necho b\n#! not the first\necho c\necho main\n"


def test_what_only_looks_like_it_stays():
    stays = '[ -f x ] && . x\necho source x\nsources x\n.x\n# . x\nsource "x" && echo\nsource x y\n./x\nsource\n'
    assert bundled({"main.sh": f". y\n{stays}", "y": "echo y\n"}) == f"echo y\n{stays}"


def test_quotes_blanks_and_last_lines():
    files = {
        "main.sh": "\t source\t\"lib/with blank.sh\"  \n  . 'q.sh'\nsource r.sh\nend",
        "lib/with blank.sh": "echo \"$1\" '\\n' %s `x`",
        "q.sh": "",
        "r.sh": "\n\n  indented \\\n",
    }
    assert bundled(files) == "echo \"$1\" '\\n' %s `x`\n\n\n  indented \\\nend\n"


def test_a_missing_file():
    made, done = bundle({"main.sh": ". a.sh\n", "a.sh": "echo a\n. 'no/such file.sh'\n"})
    assert done.returncode == 1
    assert "no/such file.sh" in done.stderr
    assert not (made / "out.sh").exists()
    made, done = bundle({"main.sh": "echo x\n. gone\n", "out.sh": "old\n"})
    assert done.returncode == 1
    assert nobody.read(made / "out.sh") == "old\n"
