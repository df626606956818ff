"""order.py is run on packages that are made here."""

import shutil
from pathlib import Path

import nobody


def order(packages, *named):
    made = nobody.folder({f"{name}/package.conf": conf for name, conf in packages.items()})
    return nobody.run("python3", "/app/order.py", made, *named)


def lines(packages, *named):
    done = order(packages, *named)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_example():
    made = nobody.folder()
    shutil.copytree("/app/packages", made / "p")
    done = nobody.run("python3", "/app/order.py", made / "p")
    assert (done.returncode, done.stdout) == (0, Path("/app/expected.txt").read_text())
    assert len(done.stdout) > 20


def test_least_name_at_each_place():
    packages = {"a": "needs = z", "b": "", "c": "needs = b", "z": "", "B": "needs = c", "é": "", "aa": "needs = é"}
    assert lines(packages) == ["b", "c", "B", "z", "a", "é", "aa"]
    wide = {f"n{number:03}": f"needs = n{(number * 37 + 11) % 200 + 200:03}" for number in range(200)}
    wide |= {f"n{number:03}": "" for number in range(200, 400)}
    done = lines(wide)
    place = {name: at for at, name in enumerate(done)}
    expected = []
    ready = sorted(name for name in wide if int(name[1:]) >= 200)
    held = {name: wide[name][8:] for name in wide if int(name[1:]) < 200}
    while ready:
        name = ready.pop(0)
        expected.append(name)
        ready = sorted([*ready, *(each for each, need in held.items() if need == name)])
    assert len(place) == 400
    assert done == expected


def test_named_packages_only():
    packages = {"app": "needs = lib", "lib": "needs = base", "base": "", "tool": "needs = base", "other": ""}
    assert lines(packages, "lib") == ["base", "lib"]
    assert lines(packages, "tool", "lib", "tool") == ["base", "lib", "tool"]


def test_conf_is_read_as_described():
    packages = {
        "x": "  needs   =  one,two ,\tthree\nneeds=four\n   # needs = five\nneeds\nneedsmore = five\nurl = a=b\n",
        **dict.fromkeys(["one", "two", "three", "four", "five"], "\n\n"),
    }
    assert lines(packages, "x") == ["four", "one", "three", "two", "x"]


def test_missing():
    done = order({"a": "needs = b zz yy", "b": "needs = a"})
    assert (done.returncode, done.stdout) == (3, "")
    assert "yy" in done.stderr
    assert "zz" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = order({"a": ""}, "ghost")
    assert (done.returncode, done.stdout) == (3, "")
    assert "ghost" in done.stderr


def test_shortest_cycle():
    packages = {"a": "needs = b", "b": "needs = c", "c": "needs = a x", "x": "needs = w", "w": "needs = x", "free": ""}
    done = order(packages)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.rstrip("\n").endswith("cycle: w -> x -> w")
    assert len(done.stderr.splitlines()) == 1
    done = order({"m": "needs = n", "n": "needs = m q", "q": "needs = n"})
    assert done.returncode == 4
    assert "cycle: m -> n -> m" in done.stderr
    done = order({"self": "needs = self", "p": "needs = q", "q": "needs = p"})
    assert done.returncode == 4
    assert "cycle: self -> self" in done.stderr


def test_what_is_not_built_causes_no_error():
    packages = {"good": "needs = fine", "fine": "", "bad": "needs = nothing", "r": "needs = s", "s": "needs = r"}
    assert lines(packages, "good") == ["fine", "good"]
    assert order(packages, "r").returncode == 4
    assert order(packages).returncode == 3
