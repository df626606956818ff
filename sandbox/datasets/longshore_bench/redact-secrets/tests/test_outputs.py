"""redact.py is run on logs that are made here."""

import base64
from pathlib import Path

import nobody

KEY = "AKIA" + "AB12" * 4


def redacted(text):
    """Bytes in, bytes out."""
    made = nobody.folder({"in": text})
    done = nobody.run("bash", "-o", "pipefail", "-c", f"python3 /app/redact.py < '{made}/in' | base64 -w0")
    assert done.returncode == 0, done.stderr
    return base64.b64decode(done.stdout)


def each(pairs):
    lines = redacted("".join(f"{text}\n" for text, _ in pairs)).decode().split("\n")[:-1]
    assert len(lines) == len(pairs)
    for (text, wanted), found in zip(pairs, lines, strict=True):
        assert found == (text if wanted is None else wanted), text


def test_example():
    assert redacted(Path("/app/example.log").read_text()).decode() == (
        "2024-03-01 10:00:00 login ok user=ann password=[SECRET], next\n"
        "GET /x HTTP/1.1 authorization: bearer [TOKEN] trace=1\n"
        '{"db_password": "[SECRET]", "user": "bob"}\n'
        "connect postgres://[LOGIN]@db.example/main [KEY]\n"
        "paid with [CARD 1111] ref 4111111111111112\n"
    )


def test_keys_and_tokens():
    each([
        (f"a {KEY}, ASIA{'Z' * 16}-x", "a [KEY], [KEY]-x"),
        (f"x{KEY} {KEY}Y {KEY}_ _{KEY} akia{'A' * 16}", None),
        (f"ü{KEY}ü", "ü[KEY]ü"),
        ("BEARER\t abc/d+e~f=|x Bearer: y", "BEARER\t [TOKEN]|x Bearer: y"),
        ("Forbearer abc, bearerabc", None),
        ("éBearer x.y, Bearer z", "éBearer [TOKEN], Bearer [TOKEN]"),
        (f"Bearer {KEY}.tail", "Bearer [KEY].tail"),
    ])  # fmt: skip


def test_secrets():
    each([
        ("password=a&x=1;PASSWD: b;secret\t=\tc d", "password=[SECRET]&x=1;PASSWD: [SECRET];secret\t=\t[SECRET] d"),
        ("DB_Password_2=x X-Api_Key-2: y/z=1", "DB_Password_2=[SECRET] X-Api_Key-2: [SECRET]"),
        ('"api_key" : "a, \\"b\\" c", "n": 1', '"api_key" : "[SECRET]", "n": 1'),
        ('password="no end; here', 'password="[SECRET]'),
        ('password="" secret=, passwd=;x api_key:', None),
        ("passwort=x secrets are kept; the password is x", None),
        ("secretly: yes", "secretly: [SECRET]"),
        ("password = = x", "password = [SECRET] x"),
        ("password=secret=x", "password=[SECRET]"),
        ('passwd:x"y', 'passwd:[SECRET]"y'),
        ("Secret=ümläut\u00a0x y", "Secret=[SECRET] y"),
        (f"secret={KEY}", "secret=[KEY]"),
        (f'secret="a {KEY} b" x', 'secret="[SECRET][KEY] b" x'),
    ])  # fmt: skip


def test_logins():
    each([
        ("ftp://u:p@h/ git+ssh://a.b:c:d@h x", "ftp://[LOGIN]@h/ git+ssh://[LOGIN]@h x"),
        ("redis://:p@h http://user@h/ http://h:80/x@y http://u:p/@h", "redis://[LOGIN]@h http://user@h/ http://h:80/x@y http://u:p/@h"),
        ("x://u:@h,9y://u:p@h", "x://[LOGIN]@h,9y://[LOGIN]@h"),
        ("://u:p@h 1://u:p@h", None),
        ("https://u:p w@h u:p@h", None),
    ])  # fmt: skip


def test_cards():
    each([
        ("4111-1111-1111-1111 5500 0000 0000 0004.", "[CARD 1111] [CARD 0004]."),
        ("378282246310005, 4222222222222 6304000000000000000", "[CARD 0005], [CARD 2222] [CARD 0000]"),
        ("4111111111111112 411111111111 4111  1111 1111 1111", None),
        ("x4111111111111111 4111111111111111x -4111111111111111 4111111111111111- _4111111111111111", None),
        ("id 7 4111111111111111", "id 7 [CARD 1111]"),
        ("4111 1111 1111 1111 12", "[CARD 1111] 12"),
        ("é4111111111111111é", "é[CARD 1111]é"),
        ("00000000000000000000000 0000000000000", "00000000000000000000000 [CARD 0000]"),
    ])  # fmt: skip


def test_other_bytes_and_line_ends():
    text = b"\xff\xfe password=\xffx\xfe\r\npassword=a\r\n\n\x00 secret=b\x0bc\n\xc3 4111111111111111"
    assert redacted(text) == (
        b"\xff\xfe password=[SECRET]\r\npassword=[SECRET]\r\n\n\x00 secret=[SECRET]\n\xc3 [CARD 1111]"
    )
    assert redacted(b"secret=x") == b"secret=[SECRET]"
