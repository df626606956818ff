"""build.sh is run on sites that are made here."""

import os
import shutil

import nobody

SITE = {
    "pages/a.page": "@include head\nA {{NAME}} {{OTHER}}\n",
    "pages/deep/er/b c.page": "B\n\t@include  foot \t\nend",
    "pages/deep/notes.txt": "no page\n",
    "pages/plain.page": "plain\n",
    "parts/head": "H {{NAME}}",
    "parts/foot": "F\n@include sub/dir part\n",
    "parts/sub/dir part": "D {{PLAIN_1}}\n",
    "vars": "NAME=first\nOTHER=x & y \\1 / = {{NAME}}\nNAME=se|cond\nPLAIN_1=\n",
}
PAGES = {
    "a.html": "H se|cond\nA se|cond x & y \\1 / = {{NAME}}\n",
    "deep/er/b c.html": "B\nF\nD \nend\n",
    "plain.html": "plain\n",
}


def site(more=None):
    files = {f"site/{path}": text for path, text in {**SITE, **(more or {})}.items() if text is not None}
    return nobody.folder(files)


def build(made):
    return nobody.run("bash", "/app/build.sh", made / "site", made / "out", cwd=made)


def pages(made):
    found = nobody.run("find", made / "out", "-type", "f", "-printf", "%P\\n").stdout.splitlines()
    return {path: nobody.read(made / "out" / path) for path in found}


def write(made, path, text):
    target = made / "site" / path
    target.write_text(text)
    os.chown(target, 65534, 65534)


def kept(made, path):
    found = (made / "out" / path).lstat()
    return found.st_ino, found.st_mtime_ns


def test_example():
    made = nobody.folder()
    shutil.copytree("/app/site", made / "site")
    done = build(made)
    assert (done.returncode, done.stdout) == (0, "built guide/first steps.html\nbuilt index.html\n"), done.stderr
    head = "<html><head><title>Salt & Pepper</title></head><body>\n"
    foot = "<small>A/B \\ C</small>\n</body></html>\n"
    assert pages(made) == {
        "index.html": f"{head}<p>Welcome to Salt & Pepper.</p>\n{foot}",
        "guide/first steps.html": f"{head}<p>{{{{UNKNOWN}}}}</p>\n{foot}",
    }


def test_includes_and_values():
    made = site()
    done = build(made)
    assert (done.returncode, done.stdout) == (0, "".join(f"built {path}\n" for path in sorted(PAGES))), done.stderr
    assert pages(made) == PAGES
    bare = site({"vars": None, "pages/a.page": "{{NAME}} {{lower}}\n@include\n@includes head\n"})
    assert build(bare).returncode == 0
    assert pages(bare)["a.html"] == "{{NAME}} {{lower}}\n@include\n@includes head\n"


def test_only_what_changed_is_written():
    made = site()
    assert build(made).returncode == 0
    before = {path: kept(made, path) for path in PAGES}
    assert len(before) == 3
    for each in (made / "site").rglob("*"):
        os.utime(each, (4 * 10**9, 4 * 10**9))
    done = build(made)
    assert (done.returncode, done.stdout) == (0, "")
    write(made, "parts/sub/dir part", "new\n")
    os.utime(made / "site/parts/sub/dir part", (1, 1))
    assert build(made).stdout == "built deep/er/b c.html\n"
    assert pages(made)["deep/er/b c.html"] == "B\nF\nnew\nend\n"
    write(made, "vars", "NAME=third\nOTHER=\n")
    assert build(made).stdout == "built a.html\n"
    assert kept(made, "plain.html") == before["plain.html"]


def test_removed_and_edited_outputs_are_made_again():
    made = site()
    assert build(made).returncode == 0
    nobody.run("rm", made / "out/plain.html")
    nobody.run("sh", "-c", f"echo edited >> '{made}/out/a.html'")
    assert build(made).stdout == "built a.html\nbuilt plain.html\n"
    assert pages(made) == PAGES


def test_outputs_without_a_page_are_removed():
    made = site()
    assert build(made).returncode == 0
    shutil.rmtree(made / "site/pages/deep")
    nobody.run("sh", "-c", f"mkdir '{made}/out/old'; touch '{made}/out/old/x y.html' '{made}/out/style.css'")
    done = build(made)
    assert (done.returncode, done.stdout) == (0, "removed deep/er/b c.html\nremoved old/x y.html\n"), done.stderr
    assert sorted(each.name for each in (made / "out").iterdir()) == ["a.html", "plain.html", "style.css"]


def test_broken_pages_do_not_stop_the_others():
    made = site()
    assert build(made).returncode == 0
    write(made, "pages/plain.page", "@include ghost\n")
    write(made, "pages/loop page.page", "@include foot\n")
    write(made, "parts/sub/dir part", "@include foot\n")
    write(made, "pages/zz.page", "last\n")
    done = build(made)
    assert done.returncode == 1
    assert done.stdout == "built zz.html\n"
    told = done.stderr.splitlines()
    for page in ("deep/er/b c.page", "loop page.page", "plain.page"):
        assert sum(page in line for line in told) == 1
    assert pages(made) == {**PAGES, "zz.html": "last\n"}
