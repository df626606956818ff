"""``make setup`` mends what an interrupt, a move or another Python left: else only ``rm -rf .venv`` helps, and nobody
says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FAKE_PYTHON = """\
#!/bin/sh
here=$(dirname "$0"); echo "$*" >>"$LOG"
case "$*" in
-V) echo "Python ${FAKE_VERSION:-3.11.7}" ;;
'-m venv --clear '*)
    rm -rf "$4/"*; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; echo "VIRTUAL_ENV='$PWD/$4'" >"$4/bin/activate"
    [ -z "$CUT_OFF" ] || exit 1
    echo "${FAKE_VERSION:-3.11.7}" >"$4/bin/pip-of" ;;
'-m pip --version') [ "$(cat "$here/pip-of")" = "${FAKE_VERSION:-3.11.7}" ] ;;
esac
"""


class Checkout:
    """A checkout whose Python is a stand-in that writes down what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder / "checkout", folder / "log"
        (self.folder / "tools").mkdir(parents=True)
        for name in ("tools/setup.sh", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.folder / name)
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name, text in (("python3", FAKE_PYTHON), ("df", "#!/bin/sh\necho; echo / 1 1 9000\n")):
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def setup(self, **env: str) -> tuple[int, list[str]]:
        """Exit code, and what was made or installed."""
        self.log.write_text("")
        done = subprocess.run(
            ["bash", str(self.folder / "tools" / "setup.sh")],
            env={
                "PATH": f"{self.programs}:{os.environ['PATH']}",
                "LOG": str(self.log),
                "SETUP_DOCKER": "0",
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        made = ["venv" for line in self.python_arguments() if line.startswith("-m venv")]
        return done.returncode, made + [
            "packages" for line in self.python_arguments() if "--requirement constraints.txt" in line
        ]

    def python_arguments(self) -> list[str]:
        """Return the arguments of the last Python call."""
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_second_run_installs_nothing(checkout: Checkout) -> None:
    assert checkout.setup() == (0, ["venv", "packages"])
    assert checkout.setup() == (0, [])


def test_changed_pins_are_installed_into_the_existing_environment(checkout: Checkout) -> None:
    checkout.setup()
    pins = checkout.folder / "constraints.txt"
    pins.write_text(pins.read_text() + "# another pin\n")
    assert checkout.setup() == (0, ["packages"])


def test_an_incomplete_environment_is_created_again(checkout: Checkout) -> None:
    assert checkout.setup(CUT_OFF="1") == (1, ["venv"])
    assert checkout.setup() == (0, ["venv", "packages"])


def test_a_link_to_another_checkouts_environment_is_replaced_and_its_target_kept(
    checkout: Checkout, tmp_path: Path
) -> None:
    there = Checkout(tmp_path / "there")
    there.setup()
    other = there.folder / ".venv"
    before = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    (checkout.folder / ".venv").symlink_to(other)
    assert checkout.setup() == (0, ["venv", "packages"])
    assert not (checkout.folder / ".venv").is_symlink()
    assert {path: path.read_bytes() for path in other.rglob("*") if path.is_file()} == before


def test_a_moved_checkout_gets_working_scripts(checkout: Checkout) -> None:
    checkout.setup()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    assert checkout.setup() == (0, ["venv", "packages"])


def test_a_new_python_version_reinstalls_the_environment(checkout: Checkout) -> None:
    checkout.setup()
    assert checkout.setup(FAKE_VERSION="3.13.1") == (0, ["venv", "packages"])


def test_the_requested_python_replaces_another(checkout: Checkout) -> None:
    checkout.setup()
    other = checkout.programs / "python3.12"
    other.write_text(FAKE_PYTHON.replace("3.11.7", "3.12.1"))
    other.chmod(0o755)
    assert checkout.setup(PYTHON="python3.12") == (0, ["venv", "packages"])
    assert checkout.setup() == (0, [])


def test_the_torch_index_is_used_only_for_torch(checkout: Checkout) -> None:
    """Such an index has torch's builds, and not the pinned versions of what torch needs."""
    checkout.setup(TORCH_INDEX="https://torch.example/cpu")
    (torch,) = (line for line in checkout.python_arguments() if "torch.example" in line)
    assert re.fullmatch(r"-m pip install --no-deps --index-url https://torch\.example/cpu torch==[0-9.]+", torch)


def test_without_a_torch_index_torch_is_installed_with_its_dependencies(checkout: Checkout) -> None:
    """A CUDA build asks for another triton than the pinned one, and cannot be imported without its libraries."""
    checkout.setup()
    torch = next(line for line in checkout.python_arguments() if line.startswith("-m pip install"))
    assert re.fullmatch(r"-m pip install torch==[0-9.]+", torch)
