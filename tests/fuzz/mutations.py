"""Changes of good inputs that leave most of their structure: of JSON, YAML and TOML values, of files, and of text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from random import Random
from typing import Any

import tomli_w
import yaml

from sandbox.tasks.file_tree import TreeFile
from sandbox.tasks.yaml_text import YamlError, parse_yaml
from tests.fuzz.folder_text import join_folder, split_folder
from tests.fuzz.fuzz_target import InputKind

ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308, 5e-324),
    *("", " ", "\0", "\ud800", "\x1b[2J", "a\nb", "é", "\U0001f600", "\u2028", "\u0660", "nan", "inf", "1e999", "null"),
    *(
        "..",
        ".",
        "/",
        "../x",
        "~",
        "a/../b",
        "//",
        "-",
        "$",
        "$$",
        "${",
        "${A",
        "${A:-${B}}",
        "$A",
        "%s",
        "{}",
        "[",
        "*",
    ),
    *(
        "http://",
        "http://[",
        "https://a.b:99999/",
        "http://a:b@c",
        "[::1]:80",
        "*.a.org",
        "a:0",
        "sha256:",
        "a@sha256:x",
    ),
    *(
        [],
        {},
        [[]],
        [None],
        {"": None},
        "x" * 5000,
        "\\",
        '"',
        "'",
        "`",
        "#",
        "\t",
        "\r\n",
        "٠",
        "1_000",
        "0x1f",
        "1:2",
    ),
]
_WORDS = re.compile(rb"[A-Za-z_][\w.-]*|[^\w\s]+|\d+")
_ODD_BYTES = [
    *(
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\t",
        b"\\\n",
        b"\\",
        b"$",
        b"${",
        b"}",
    ),
    *(b"<<EOF\n", b"<<-'A'\nx\nA\n", b'"', b"'", b"`", b"#", b"--", b"=", b":", b"[", b"]", b"{", b"*a", b"&a ", b"!!"),
    *(
        b"99999999999999999999",
        b"-1",
        b"1e999",
        b"../",
        b"/",
        b"http://a/b",
        b"\xe2\x80\xa8",
        b"\x85",
        b"@@ -1 +1 @@\n",
    ),
]


def mutate(data: bytes, kind: InputKind, rng: Random, others: list[bytes]) -> bytes:
    """Return a changed input; ``others`` are inputs from which parts are taken."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        match kind:
            case InputKind.JSON:
                data = _mutate_json(data, rng, others)
            case InputKind.FOLDER:
                data = _mutate_folder(data, rng, others)
            case InputKind.TEXT:
                data = _mutate_text(data, rng, others)
    return data


def _mutate_json(data: bytes, rng: Random, others: list[bytes]) -> bytes:
    if rng.random() < 0.1:
        return _mutate_text(data, rng, others)
    return _mutate_value(data, rng, others, json.loads, lambda value: json.dumps(value).encode())


def _mutate_value(
    data: bytes,
    rng: Random,
    others: list[bytes],
    parse: Callable[[str], object],
    write: Callable[[Any], bytes],
) -> bytes:
    try:
        value = parse(data.decode(errors="surrogateescape"))
        return write(_change(value, rng, others))
    except (ValueError, TypeError, YamlError, yaml.YAMLError, RecursionError, AttributeError, OverflowError):
        return _mutate_text(data, rng, others)


def _change(value: object, rng: Random, others: list[bytes]) -> object:
    """Return ``value`` with one of its parts changed."""
    holder: dict[object, Any] = {0: value}
    places = list(_places(holder))
    parent, key = rng.choice(places)
    old = parent[key]
    match rng.randrange(9):
        case 0 | 1:
            parent[key] = rng.choice(ODD_VALUES)
        case 2:
            other, name = rng.choice(places)
            parent[key] = json.loads(json.dumps(other[name], default=str))
        case 3 if parent is not holder:
            del parent[key]
        case 4 if isinstance(parent, list):
            parent.insert(key, old)
        case 5 if isinstance(parent, dict) and parent is not holder:
            parent[rng.choice([str(name) for _, name in places])] = parent.pop(key)
        case 6:
            parent[key] = rng.choice([[old], {"a": old}, [old, old], {"type": old}])
        case 7 if isinstance(old, int | float) and not isinstance(old, bool):
            parent[key] = rng.choice([-old, old + 1, old * 1000, old / 3, str(old)])
        case _ if isinstance(old, str):
            changed = _mutate_text(old.encode(errors="surrogatepass"), rng, others)
            parent[key] = changed.decode(errors="surrogateescape" if rng.random() < 0.1 else "replace")
        case _:
            parent[key] = rng.choice(ODD_VALUES)
    return holder[0]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return each part of a value as its parent and its key there."""
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left:
        each = left.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each))
        for key in keys:
            found.append((each, key))
            if isinstance(each[key], dict | list):
                left.append(each[key])
    return found


def _mutate_folder(data: bytes, rng: Random, others: list[bytes]) -> bytes:
    files = split_folder(data)
    if not files or rng.random() < 0.02:
        return _mutate_text(data, rng, others)
    small = [path for path in files if len(files[path].data) < 4000] or list(files)
    path = rng.choice(small)
    file = files[path]
    if (choice := rng.random()) < 0.04:
        del files[path]
    elif choice < 0.08:
        files[rng.choice(sorted(files))] = file
    elif choice < 0.12:
        files[_mutate_text(path.encode(), rng, others).replace(b"\n", b"").decode(errors="replace")] = file
    elif choice < 0.16:
        donor = split_folder(rng.choice(others))
        files |= {name: donor[name] for name in rng.sample(sorted(donor), min(2, len(donor)))}
    else:
        files[path] = TreeFile(_mutate_file(path, file.data, rng, others), file.executable)
    return join_folder(files)


def _mutate_file(path: str, data: bytes, rng: Random, others: list[bytes]) -> bytes:
    suffix = path.rpartition(".")[2]
    if rng.random() < 0.3 or suffix not in {"json", "yaml", "yml", "toml"}:
        return _mutate_text(data, rng, others)
    if suffix == "json":
        return _mutate_json(data, rng, others)
    if suffix == "toml":
        return _mutate_value(data, rng, others, tomllib.loads, lambda value: tomli_w.dumps(value).encode())
    return _mutate_value(data, rng, others, parse_yaml, lambda value: yaml.dump(value).encode())


def _mutate_text(data: bytes, rng: Random, others: list[bytes]) -> bytes:
    begin = rng.randrange(len(data) + 1)
    end = min(len(data), begin + rng.choice((0, 1, 2, 8, 40)))
    match rng.randrange(8):
        case 0:
            piece = rng.choice(_ODD_BYTES)
        case 1:
            piece = _word(rng.choice(others), rng)
        case 2:
            piece = b""
        case 3:
            piece = data[begin:end] * rng.choice((2, 3, 50))
        case 4:
            piece = bytes([rng.randrange(256)])
        case 5 if words := list(_WORDS.finditer(data)):
            begin, end = rng.choice(words).span()
            piece = rng.choice([_word(rng.choice(others), rng), rng.choice(_ODD_BYTES)])
        case 6:
            lines = data.splitlines(keepends=True) or [b""]
            at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines.insert(to, lines.pop(at) if rng.random() < 0.5 else lines[at])
            return b"".join(lines)
        case _:
            begin = data.rfind(b"\n", 0, begin) + 1
            end = data.find(b"\n", begin) + 1 or len(data)
            piece = b""
    return data[:begin] + piece + data[end:]


def _word(data: bytes, rng: Random) -> bytes:
    begin = rng.randrange(len(data) + 1)
    found = _WORDS.search(data, begin) or _WORDS.search(data)
    return found[0] if found else b""
