"""Names by which Python tests run code from elsewhere in their own process, or start programs."""

from __future__ import annotations

_COMMAND_CRITERIA = ("succeeds", "output_contains", "output_matches", "output_matches_regex")

LOADERS = frozenset((
    *(f"{module}{name}" for module in ("", "builtins.", "__builtins__.") for name in ("__import__", "eval", "exec")),
    *(f"sys.{name}" for name in ("path", "path_hooks", "path_importer_cache", "meta_path")),
    *(f"site.{name}" for name in ("addsitedir", "addpackage", "addsitepackages", "addusersitepackages")),
    *(f"importlib.{name}" for name in ("import_module", "__import__")),
    *(f"importlib.util.{name}" for name in ("spec_from_file_location", "spec_from_loader", "LazyLoader")),
    "pkgutil.walk_packages", "pkgutil.extend_path",
    *(f"ctypes.{name}" for name in ("CDLL", "PyDLL", "cdll", "pydll", "LibraryLoader")), "_ctypes.dlopen",
    *(f"{module}.{name}" for module in ("pickle", "_pickle") for name in ("load", "loads", "Unpickler")),
    "marshal.load", "marshal.loads", "shelve.open", "shelve.Shelf", "shelve.DbfilenameShelf",
    "tracemalloc.Snapshot.load", "multiprocessing.connection.Client", "multiprocessing.connection.Listener",
    *(f"logging.config.{name}" for name in ("fileConfig", "dictConfig", "listen")),
    *(f"{module}.{name}" for module in ("cProfile", "profile") for name in ("run", "runctx")), "trace.Trace",
    *(f"doctest.{name}" for name in ("testfile", "run_docstring_examples", "debug", "debug_src", "debug_script")),
    *(f"doctest.{name}" for name in ("DocFileSuite", "DocFileTest", "DocTestParser", "DocTestRunner", "DebugRunner")),
))  # fmt: skip
"""These names bring code into the process, from files that they read or from a path that the tests change."""
LOADER_MODULES = frozenset((
    "_frozen_importlib", "_frozen_importlib_external", "_imp", "bdb", "code", "importlib._bootstrap",
    "importlib._bootstrap_external", "importlib.machinery", "pdb", "pydoc", "runpy", "zipimport",
))  # fmt: skip
"""Everything in these modules brings code into the process."""
LOADER_METHODS = {
    "discover": "unittest",
    "loadTestsFromName": "unittest",
    "loadTestsFromNames": "unittest",
    "enable_load_extension": "sqlite3",
    "load_extension": "sqlite3",
    "import_plugin": "",
    "syspath_prepend": "",
}
"""These methods bring code into the process. Each has the module that a file imports to get such an object."""
RUNNERS = frozenset(("pytest.main", "pytest.console_main", "unittest.main"))
"""These functions run other tests, except where a file runs itself with them."""
TIMERS = frozenset(("timeit.timeit", "timeit.repeat", "timeit.Timer"))
"""These functions run either a text, which is code, or a function of the tests."""
IMPORTERS = frozenset(("pytest.importorskip", "importlib.util.find_spec", "pkgutil.resolve_name"))
"""These functions import the module that their first argument names."""
REPLACERS = frozenset(("unittest.mock.patch", "unittest.mock.patch.dict", "unittest.mock.patch.multiple"))
"""These functions import the module that their first argument names if it is a text."""
REPLACER_METHODS = frozenset(("setattr", "delattr"))
"""These methods of pytest's ``monkeypatch`` import such a module too."""

ANY_MEMBER = "*"
"""Stands for a member of a module whose name the text does not tell."""
STARTERS = frozenset((
    *(f"subprocess.{name}" for name in ("Popen", "call", "check_call", "check_output", "run")),
    *(f"subprocess.{name}" for name in ("getoutput", "getstatusoutput")), "_posixsubprocess.fork_exec",
    *(f"{module}.{name}" for module in ("os", "posix") for name in ("popen", "system", "posix_spawn", "posix_spawnp")),
    *(f"{module}.{call}{form}" for module in ("os", "posix") for call in ("exec", "spawn")
      for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    *(f"asyncio.{module}create_subprocess_{what}" for module in ("", "subprocess.") for what in ("exec", "shell")),
    *(f"{module}.{ANY_MEMBER}" for module in ("subprocess", "pty")),
    "multiprocessing.util.spawnv_passfds", "pty.spawn", "pexpect.spawn", "pexpect.run", "imaplib.IMAP4_stream",
    "webbrowser.open", "webbrowser.get",
    "venv.create", "venv.EnvBuilder", "ensurepip.bootstrap", "ctypes.util.find_library",
    *(f"rewardkit.{module}command_{what}" for module in ("", "criteria.") for what in _COMMAND_CRITERIA),
))  # fmt: skip
STARTER_METHODS = frozenset(("subprocess_exec", "subprocess_shell"))
"""These methods of asyncio's event loops start programs."""
