"""files.py is asked for files of folders that are made here."""

import os

import nobody


def site():
    made = nobody.folder({
        "root/index.html": "home",
        "root/a b/ü%.txt": "text",
        "root/%2e%2e/x": "odd",
        "root/empty": "",
        "root/dir/index.html": "inner",
        "root/none/x": "x",
        "root/.hidden/x": "hidden",
        "root/dir/.secret": "hidden",
        "root/...": "dots",
        "root/etc/passwd": "not that one",
        "root-private/key": "secret",
        "outside": "secret",
    })  # fmt: skip
    (made / "bin").write_bytes(bytes(range(256)) * 500)
    return made


def ask(made, path, root="root"):
    line = path if path.endswith("\n") else f"{path}\n"
    done = nobody.run("python3", "/app/files.py", made / root, stdin=line, cwd="/", timeout=20)
    assert done.returncode == 0, done.stderr
    assert str(made) not in done.stdout
    return done.stdout


def found(text):
    return f"200 {len(text.encode())}\n{text}"


def test_files_are_served():
    made = site()
    assert ask(made, "/") == found("home")
    assert ask(made, "/a%20b/%c3%BC%25.txt?x=/../y") == found("text")
    assert ask(made, "//a b//.//%C3%BC%25.txt#..") == found("text")
    assert ask(made, "/dir") == ask(made, "/dir/./") == found("inner")
    assert ask(made, "/%252e%252e/x") == found("odd")
    assert ask(made, "/empty?") == found("")
    assert ask(made, "/etc%2Fpasswd") == found("not that one")
    for missing in ("/none", "/index.html/x", "/gone", "/" + "a" * 300, "/dir/index.html/"):
        assert ask(made, missing) in ("404\n", found("inner")), missing
    assert ask(made, "/none") == ask(made, "/gone") == "404\n"


def test_places_outside():
    made = site()
    assert ask(made, "/dir/") == found("inner")
    ups = [
        "/../outside",
        "/..",
        "/dir/../../outside",
        "/%2e%2e/outside",
        "/dir/..%2f..%2Foutside",
        "/.%2e/outside",
        "/dir/..",
    ]
    ups += ["/..../....//outside/../..", "/dir/%2e./index.html", "/../root-private/key"]
    for path in ups:
        assert ask(made, path) == "400\n", path
    assert ask(made, f"/{made}/outside") == "404\n"
    assert ask(made, "//etc/hostname") == "404\n"
    assert ask(made, "/....//outside") == "404\n"


def test_links():
    made = site()
    root = made / "root"
    for name, target in {
        "in": "dir/index.html",
        "indir": "dir",
        "abs": made / "root/empty",
        "out": "../outside",
        "outdir": "../root-private",
        "outabs": "/etc",
        "chain": "out",
        "back": "../root/index.html",
        "tohidden": ".hidden/x",
        "round": "round",
        "dangling": "gone",
    }.items():
        (root / name).symlink_to(target)
    (root / "none/index.html").symlink_to("../../outside")
    (made / "door").symlink_to("root")
    assert ask(made, "/in") == ask(made, "/indir/") == found("inner")
    assert ask(made, "/abs") == found("")
    assert ask(made, "/back") == found("home")
    for name in (
        "out",
        "outdir/key",
        "outabs/hostname",
        "chain",
        "tohidden",
        "round",
        "dangling",
        "none",
        "indir/.secret",
    ):
        assert ask(made, f"/{name}") == "404\n", name
    assert ask(made, "/in", "door") == ask(made, "/dir", "door/") == found("inner")
    assert ask(made, "/out", "door") == "404\n"


def test_bad_requests():
    made = site()
    assert ask(made, "/?") == found("home")
    for path in [
        "index.html",
        "",
        "dir/",
        "?/",
        "/%",
        "/%2",
        "/%zz",
        "/a%00b",
        "/index.html%00.png",
        "/a%5cb",
        "/a\\b",
        "/%ff",
        "/%c3",
    ]:
        assert ask(made, path) == "400\n", path
    assert ask(made, "/?%zz%00\\..") == found("home")


def test_hidden():
    made = site()
    assert ask(made, "/dir/index.html") == found("inner")
    for path in ("/.hidden/x", "/%2ehidden/x", "/dir/.secret", "/.../", "/...", "/.hidden", "/.gone"):
        assert ask(made, path) == "404\n", path


def test_pipes_and_unreadable_files():
    made = site()
    os.mkfifo(made / "root/pipe")
    (made / "root/closed").write_text("secret")
    (made / "root/closed").chmod(0o600)
    (made / "root/null").symlink_to("/dev/zero")
    os.mkfifo(made / "root/none/index.html")
    assert ask(made, "/") == found("home")
    for path in ("/pipe", "/closed", "/null", "/none/", "/pipe/x"):
        assert ask(made, path) == "404\n", path
