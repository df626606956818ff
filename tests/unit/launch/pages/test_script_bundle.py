"""One script of many modules.  If these fail, a report or an exported trajectory opens as an empty page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.pages.script_bundle import bundle_scripts
from launch.pages.static_files import STATIC_FOLDER

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the script")


def written(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        path = folder / f"{name.replace('__', '/')}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder


def printed(script: str) -> object:
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_node
def test_modules_run_in_order_and_their_private_names_do_not_collide(tmp_path: Path):
    folder = written(
        tmp_path,
        low='const hidden = 1;\nexport function one() {\n  return hidden;\n}\nexport const KEY = "k";\n',
        parts__middle='import {\n  KEY,\n  one,\n} from "../low.js";\n\nconst hidden = 2;\n'
        "export class Two {\n  sum = hidden + one();\n  key = KEY;\n}\n",
        parts__top='import { one } from "../low.js";\nimport { Two } from "./middle.js";\nconst hidden = new Two();\n'
        "console.log(JSON.stringify([one(), hidden.sum, hidden.key]));\n",
    )
    assert printed(bundle_scripts("parts/top.js", folder)) == [1, 3, "k"]


def test_a_circle_is_refused_by_name(tmp_path: Path):
    folder = written(tmp_path, a='import { b } from "./b.js";\n', b='import { a } from "./a.js";\n')
    with pytest.raises(ValueError, match=r"a\.js → b\.js → a\.js"):
        bundle_scripts("a.js", folder)


@pytest.mark.parametrize("entry", ["page/app.js", "report.js", "compare.js", "charts.js"])
@needs_node
def test_every_bundled_script_parses_and_imports_nothing(entry: str, tmp_path: Path):
    script = bundle_scripts(entry)
    assert not [line for line in script.splitlines() if line.startswith(("import ", "export "))]
    path = tmp_path / "script.mjs"
    path.write_text(script)
    done = subprocess.run(["node", "--check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


STATIC = STATIC_FOLDER / "page"


@needs_node
@pytest.mark.parametrize("waits", [[0.0], [0.5, 30.0, 0.1], [9.0, 9.0]])
def test_only_long_waits_of_a_recording_are_shortened(waits: list[float], tmp_path: Path):
    """A turn's place in the player is found by the same table."""
    times = [sum(waits[: count + 1]) for count in range(len(waits))]
    cast = "\n".join(['{"version": 2, "width": 80, "height": 24}', *(json.dumps([t, "o", "x"]) for t in times)])
    folder = written(
        tmp_path,
        top=f'import {{ shortened }} from "./page/components/recording.js";\nconst cast = {json.dumps(cast)};\n'
        'console.log(JSON.stringify(shortened(cast).data.split("\\n").slice(1)));\n',
    )
    shutil.copytree(STATIC, folder / "page")
    shutil.copy(STATIC.parent / "dom.js", folder)
    played = [json.loads(line)[0] for line in printed(bundle_scripts("top.js", folder))]
    expected = [sum(min(1.5, wait) for wait in waits[: count + 1]) for count in range(len(waits))]
    assert played == pytest.approx(expected, abs=2e-3)


ADDRESSES = [
    ("demo-1", "groups", "7", ""),
    ("a b/c%", "trajectories", "train-g000001-s00", "q=%C3%A4&step=last"),
    ("x", "", "", ""),
]


@needs_node
@pytest.mark.parametrize(("run", "page", "name", "query"), ADDRESSES)
def test_an_address_is_read_as_it_was_written(run: str, page: str, name: str, query: str, tmp_path: Path):
    """Otherwise a shared link would show another trajectory."""
    arguments = json.dumps([run, page, name])
    folder = written(
        tmp_path,
        top='import { address, parseRoute } from "./router.js";\n'
        f"const made = parseRoute(address(...{arguments}, new URLSearchParams({json.dumps(query)})));\n"
        "console.log(JSON.stringify([made.run, made.page, made.id, String(made.query)]));\n",
    )
    shutil.copy(STATIC / "router.js", folder)
    assert printed(bundle_scripts("top.js", folder)) == [run, page, name, query]
