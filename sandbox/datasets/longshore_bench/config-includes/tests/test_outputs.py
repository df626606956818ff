"""conf.py is run on files that are made here."""

import shutil

import nobody


def conf(files, *names, env=None):
    texts = {"main.conf": files} if isinstance(files, str) else files
    made = nobody.folder({f"etc/{path}": text for path, text in texts.items()})
    return nobody.run("python3", "/app/conf.py", made / "etc/main.conf", *names, env=env, cwd=made)


def settings(files, **env):
    done = conf(files, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_example():
    made = nobody.folder()
    shutil.copytree("/app/example", made / "e")
    (made / "e/main.conf").write_text((made / "e/main.conf").read_text().replace("= base\n", "= base \n; more\n"))
    done = nobody.run("python3", "/app/conf.py", made / "e/main.conf")
    wanted = [
        *("name=from-ports", "ports.http=8080", "ports.https=443", 'ports.label=a\\tb "c"\\\\'),
        *("server.host=example.net", "server.paths=/var/from-ports", "server.url=tcp://example.net:8080/"),
    ]
    assert done.stdout.splitlines() == wanted


def test_lines():
    text = (
        "a = one \\\n     two\n  # comment \\\n b = 1\n; c = 1\n\n[x-1]\n\tkey_2\t=\t v = w \ninclude-all = yes\n"
        "included=3\n[]\nZ = \\\n\\\nlast\nempty =\nend = stays\\"
    )
    assert settings(text) == [
        *("Z=last", "a=one two", "empty=", "end=stays\\\\", "x-1.include-all=yes", "x-1.included=3", "x-1.key_2=v = w"),
    ]


def test_includes_and_sections():
    files = {
        "main.conf": "[a]\nx = 1\ninclude sub/one.conf\ny = 2\ninclude sub/one.conf\n",
        "sub/one.conf": "top = ${a.x}\n[b]\nz = 3\ninclude ../sub/deep/with blank.conf\nafter = 5\n[c]\n",
        "sub/deep/with blank.conf": "x = 4\n[a]\nx = over\n",
    }
    assert settings(files) == ["a.x=over", "a.y=2", "b.after=5", "b.z=3", "top=over", "x=4"]


def test_values():
    text = (
        'a = "x # y" # z\nb = x#y # z\nc = "q\\"\\\\n\\n\\t\\e\\$"\nd = C:\\new\\"x"\ne = "  keep  "   \nf = ""#c\n'
        'g = it\'s "quoted" inside\nh = "${e}"\ni = x\t# c\nj = "tail\\\\"\n'
    )
    assert settings(text) == [
        *("a=x # y", "b=x#y", 'c=q"\\\\n\\n\\te$', 'd=C:\\\\new\\\\"x"', "e=  keep  ", "f="),
        *('g=it\'s "quoted" inside', "h=  keep  ", "i=x", "j=tail\\\\"),
    ]


def test_appending():
    files = {
        "main.conf": 'list += a\nlist += b\n[s]\nlist += c\nlist = d\nlist += "e f"\n'
        "include more.conf\nlist+=${k}\nk=1\n",
        "more.conf": "list += h\n[s]\nlist += g\n",
    }
    assert settings(files) == ["list=a,b,h", "s.k=1", "s.list=d,e f,g,1"]


def test_references():
    text = (
        "root = /r\nname = top\n[a]\nname = inner\nfull = ${root}/${name}/${b.name}\nenv = ${ENV:FOO}|${ENV:BAR}\n"
        "lit = $${name} $$ ${name}$ {x}\n[b]\nname = ${other}\nother = ${root}-late\nroot = /b\nFOO = no\n"
        "x = ${a.full}!\n"
    )
    assert settings(text, FOO="${name} \\", BAR="") == [
        *("a.env=${name} \\\\|", "a.full=/r/inner//b-late", "a.lit=${name} $$ inner$ {x}", "a.name=inner", "b.FOO=no"),
        *("b.name=/b-late", "b.other=/b-late", "b.root=/b", "b.x=/r/inner//b-late!", "name=top", "root=/r"),
    ]


def test_one_setting():
    text = 'bad = ${bad}\n[s]\ngood = "two\\nlines\\\\ ${top}"\n[]\ntop = t\n'
    done = conf(text, "s.good")
    assert (done.returncode, done.stdout) == (0, "two\nlines\\ t\n")
    done = conf(text, "good")
    assert (done.returncode, done.stdout) == (5, "")
    assert "good" in done.stderr


def failed(files, *names):
    done = conf(files, *names)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.returncode, done.stderr


def test_errors_of_files():
    for text, line in [
        ("a = 1\nnonsense\n", 2),
        ("\n\n[open\n", 3),
        ('a = x\\\ny\nb = "open\n', 3),
        ('a = "x" y\n', 1),
        ("bad key = 1\n", 1),
        ("\\\n\\\ninclude missing.conf\n", 1),
        ("# x\n= 1\n", 2),
    ]:
        code, told = failed(text)
        assert code == 2, text
        assert f"main.conf:{line}:" in told
    code, told = failed({"main.conf": "include a/b.conf\n", "a/b.conf": "\noops\n"})
    assert code == 2
    assert "b.conf:2:" in told
    code, told = failed({"other.conf": ""})
    assert code == 2
    assert "main.conf:0:" in told
    round_ = {"main.conf": "x = 1\ninclude a/b.conf\n", "a/b.conf": "\n\ninclude ../a/../main.conf\n"}
    code, told = failed(round_)
    assert code == 3
    assert "b.conf:3:" in told


def test_errors_of_references():
    for text, names in [
        ("a = ${b}\n", ["a"]),
        ("[s]\na = ${b}\nb = ${c}\nc = ${a}\n", ["s.a", "s.b", "s.c"]),
        ("x = 1\n[s]\nq = ${ENV:NOT_SET_AT_ALL}\n", ["s.q"]),
        ("[s]\nself = ${self}\n", ["s.self"]),
    ]:
        code, told = failed(text)
        assert code == 4, text
        assert any(name in told for name in names)
