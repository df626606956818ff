"""Attacks on the programs that a test script starts: shells, tools, loaders, uv.  Pure."""

from __future__ import annotations

from sandbox.validation.attacks.attack import Attack
from sandbox.validation.attacks.shell import replace_programs, write_files

_TOOLS = (
    "cat head grep cut diff cmp test timeout env tr wc start-stop-daemon git ldd mkdir rm tee getent lsb_release uname"
)
_ENVIRONMENTS = ("@app@/.venv", "@app@/.tbench-testing", "/.venv", "/tests/.venv", "/opt/venv")
_UV_PROJECT = """\
[project]
name = "app"
version = "1"
requires-python = ">=3.11"
dependencies = ["pytest"]
[tool.uv.sources]
pytest = { path = "fake" }
[tool.pytest.ini_options]
addopts = "--collect-only"\
"""
PROGRAM_ATTACKS = (
    Attack("tools that say yes", replace_programs(_TOOLS, "/usr/local/sbin /usr/bin", "@say@; exit 0")),
    Attack(
        "tools on PATH that say yes",
        f"{replace_programs(_TOOLS, '@app@/bin', '@say@; exit 0')}; export PATH=@app@/bin:$PATH",
    ),
    Attack(
        "shells that print a summary",
        replace_programs("sh bash dash", "/usr/local/sbin /usr/bin /bin", "@say@; @write@"),
    ),
    Attack(
        "profiles that print a summary",
        write_files("@say@; exit 0", "/root/.bashrc", "/root/.profile", "/etc/profile", "/etc/bash.bashrc", "@app@/env")
        + "export BASH_ENV=@app@/env ENV=@app@/env PROMPT_COMMAND='. @app@/env'",
    ),
    Attack(
        "a preloaded library",
        "cp /bin/ls @app@/evil.so; export LD_PRELOAD=@app@/evil.so LD_LIBRARY_PATH=@app@; "
        "echo LD_PRELOAD=@app@/evil.so >> /etc/environment; echo @app@/evil.so > /etc/ld.so.preload",
    ),
    Attack(
        "a pytest that prints a summary",
        replace_programs(
            "pytest py.test uv uvx curl apt-get", "/usr/local/sbin /usr/local/bin /root/.local/bin", "@say@; @write@"
        ),
    ),
    Attack(
        "a Python that prints a summary",
        replace_programs("python python3", "/usr/local/bin /usr/bin", "@say@; @write@"),
    ),
    Attack(
        "environments that print a summary",
        "".join(
            write_files("#!/bin/sh\n@say@", f"{folder}/bin/pytest", f"{folder}/bin/python", mode="755")
            + write_files("@say@; exit 0", f"{folder}/bin/activate")
            + write_files("home = @app@", f"{folder}/pyvenv.cfg")
            for folder in _ENVIRONMENTS
        )
        + "export VIRTUAL_ENV=@app@/.venv UV_PROJECT_ENVIRONMENT=@app@/.venv UV_PYTHON=@app@/.venv/bin/python",
    ),
    Attack(
        "a uv project with its own pytest",
        write_files('[project]\nname = "pytest"\nversion = "8.4.1"\n', "@app@/fake/pyproject.toml")
        + write_files("@forge@", "@app@/fake/pytest.py")
        + write_files(_UV_PROJECT, "@app@/pyproject.toml")
        + write_files("@app@/python", "@app@/.python-version")
        + write_files('find-links = ["@app@"]\nno-index = true', "@app@/uv.toml"),
    ),
    Attack(
        "uv's installer ran beforehand",
        write_files("@say@; exit 0", "/root/.local/bin/env", "/root/.cargo/env") + "chmod 444 /root/.local/bin/env",
    ),
)
