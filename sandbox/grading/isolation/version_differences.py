"""Lists what differs between versions of Python and pytest in modules that are otherwise alike, by its name.

It is what the toolchain's (3.13 and 8.4) lack of older ones, found by comparing the public names and parameters of
Python 3.6 to 3.13 and pytest 5.4 to 9, and what depends on the warnings of a version. What only newer versions have is
not here: where the image's lacks it, no answer could pass.
"""

from __future__ import annotations

DIFFERENT_NAMES = frozenset((
    "base64.decodestring", "base64.encodestring",
    *(f"binascii.{name}" for name in ("a2b_hqx", "b2a_hqx", "rlecode_hqx", "rledecode_hqx")),
    *(f"collections.{name}" for name in (
        "AsyncGenerator", "AsyncIterable", "AsyncIterator", "Awaitable", "ByteString", "Callable", "Collection",
        "Container", "Coroutine", "Generator", "Hashable", "ItemsView", "Iterable", "Iterator", "KeysView", "Mapping",
        "MappingView", "MutableMapping", "MutableSequence", "MutableSet", "Reversible", "Sequence", "Set", "Sized",
        "ValuesView",
    )),
    "configparser.LegacyInterpolation", "configparser.SafeConfigParser", "fractions.gcd", "io.OpenWrapper",
    *(f"pytest.{name}" for name in ("Instance", "collect", "deprecated_call", "warns")),
    "pytest.PytestRemovedIn8Warning", "pytest.PytestUnhandledCoroutineWarning",
    *(f"re.{name}" for name in ("T", "TEMPLATE", "RegexFlag.TEMPLATE", "template", "sre_compile", "sre_parse")),
    "sys.callstats", "sys.getcheckinterval", "sys.setcheckinterval", "time.clock", "typing.io", "typing.re",
))  # fmt: skip
"""Names of modules and of their members."""
DIFFERENT_METHODS = {
    "fromstring": "array",
    "getchildren": "xml",
    "getiterator": "xml",
    "isAlive": "threading",
    "link_to": "pathlib",
    "readfp": "configparser",
    "tostring": "array",
}
"""Names of methods; each has the module that a file imports to get such an object."""
DIFFERENT_ARGUMENTS = {
    "http.client.HTTPSConnection": frozenset(("key_file", "cert_file", "check_hostname")),
    "json.load": frozenset(("encoding",)),
    "json.loads": frozenset(("encoding",)),
    "pytest.exit": frozenset(("msg",)),
    "pytest.fail": frozenset(("msg",)),
    "pytest.skip": frozenset(("msg",)),
    "random.shuffle": frozenset(("random",)),
    "urllib.request.urlopen": frozenset(("cafile", "capath", "cadefault")),
    "warnings.catch_warnings": frozenset(("record",)),
}
"""Arguments that are given by name, by the function."""
