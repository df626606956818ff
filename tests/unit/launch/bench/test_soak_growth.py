"""If these fail, a process that leaks passes a soak, or a healthy one fails it, and nobody knows what grew."""

from __future__ import annotations

import math
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.bench.soak.benchmark import SoakArguments, SoakOptions, measure_soak, parse_options
from launch.bench.soak.curve_file import CURVES_FILE, CurveFile, CurveKey
from launch.bench.soak.growth import MIB, Curve, Figure, judge_curve
from launch.bench.soak.process_figures import name_part
from launch.bench.soak.report import PAGE_FILE, SoakReport, report_of
from launch.bench.soak.sampler import ProcessSampler
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE
from protocol.errors import UserError

TICKS = 30
ENGINE_SERVER = ["/v/bin/python", "-m", "actors.engines.server.entrypoint"]
PROCESS = """
import mmap, os, sys, tempfile, threading
kept, kind = [], sys.argv[1]
file = tempfile.TemporaryFile()
file.truncate(64 << 20)
mapped = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    if kind == "memory":
        kept.append(b"x" * (1 << 20))
    elif kind == "descriptors":
        kept.append(os.open("/dev/null", os.O_RDONLY))
    elif kind == "threads":
        kept.append(threading.Thread(target=threading.Event().wait, daemon=True))
        kept[-1].start()
    elif kind == "children":
        import subprocess
        kept.append(subprocess.Popen(["sleep", "1000"]))
    elif kind == "pages of a file":
        mapped[int(line) << 20 : int(line) + 1 << 20]
    elif kind == "nothing":
        burst = [b"x" * (1 << 20) for _ in range(int(line) % 5)]
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(line) % 5)]
        for file in files:
            os.close(file)
    print(line, end="", flush=True)
for each in kept:
    if kind == "children":
        each.kill()
        each.wait()
"""


@contextmanager
def process_that_leaks(kind: str) -> Generator[tuple[ProcessSampler, Callable[[int], None]]]:
    """A process of a run that leaks a little whenever it is told to."""
    token = secrets.token_hex(16)
    with subprocess.Popen(
        [sys.executable, "-S", "-c", PROCESS, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {RUN_TOKEN_VARIABLE: token},
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said, heard = process.stdin, process.stdout

        def tick(number: int) -> None:
            said.write(f"{number}\n")
            assert heard.readline() == f"{number}\n"

        yield ProcessSampler((token,)), tick
        said.close()


def soak(folder: Path, kind: str) -> SoakReport:
    """Sample such a process ``TICKS`` times, a minute apart by the file's clock."""
    curves = CurveFile(folder)
    with process_that_leaks(kind) as (sampler, tick):
        for number in range(TICKS):
            tick(number)
            curves.append(60.0 * number, sampler.sample())
    return report_of(folder)


@pytest.mark.parametrize(
    ("kind", "figures"),
    [
        ("memory", {Figure.ANONYMOUS}),
        ("pages of a file", set[Figure]()),
        ("descriptors", {Figure.DESCRIPTORS}),
        ("threads", {Figure.THREADS}),
        ("nothing", set[Figure]()),
    ],
)
def test_a_process_that_leaks_is_named_with_what_leaks(tmp_path: Path, kind: str, figures: set[Figure]) -> None:
    report = soak(tmp_path, kind)
    assert {each.figure for each in report.growing if each.part.startswith("python")} == figures, report.failures
    assert report.passed == (not figures)
    assert all(any(figure.value in line for line in report.failures) for figure in figures)
    assert "minutes" in (tmp_path / PAGE_FILE).read_text()


def test_children_that_are_never_waited_for_are_found(tmp_path: Path) -> None:
    report = soak(tmp_path, "children")
    assert {(each.part, each.figure) for each in report.growing} >= {("all processes", Figure.PROCESSES)}
    assert Figure.CHILDREN in {each.figure for each in report.growing}


def judged(values: Sequence[float], figure: Figure = Figure.ANONYMOUS) -> bool:
    times = [float(second) for second in range(len(values))]
    return judge_curve(Curve("worker", figure, times, values), len(values) / 3).grows


def test_what_fills_or_swings_does_not_grow_and_what_hides_in_noise_does() -> None:
    rng = random.Random(1)
    level, count = 500 * MIB, 300
    filling = [level + 100 * MIB * (1 - math.exp(-second / 40)) for second in range(count)]
    swinging = [level + (200 * MIB if second % 7 == 0 else 0) + rng.gauss(0, 10 * MIB) for second in range(count)]
    step = [level + (12 * MIB if second > 150 else 0) for second in range(count)]
    leaking = [level + 0.3 * MIB * second + rng.gauss(0, 10 * MIB) for second in range(count)]
    assert [judged(curve) for curve in (filling, swinging, step, leaking)] == [False, False, False, True]


def test_a_count_may_swing_with_the_load_and_must_not_creep() -> None:
    rng = random.Random(2)
    swinging = [40.0 + rng.randrange(8) for _ in range(300)]
    creeping = [value + second // 20 for second, value in enumerate(swinging)]
    constant = [40.0] * 300
    one_more = [40.0 + (second > 200) for second in range(300)]
    in_its_band = [40.0 + (second % 9) / 2 + second / 75 for second in range(300)]
    curves = (swinging, creeping, constant, one_more, in_its_band)
    assert [judged(curve, Figure.DESCRIPTORS) for curve in curves] == [False, True, False, False, False]


def test_a_process_that_had_to_last_and_did_not_is_named(tmp_path: Path) -> None:
    curves = CurveFile(tmp_path)
    for number in range(TICKS):
        pid = "1.1" if number < TICKS // 2 else "2.2"
        values = {CurveKey("worker", pid, Figure.ANONYMOUS): MIB, CurveKey("x", "3.3", Figure.ANONYMOUS): 1}
        curves.append(number, values)
    assert report_of(tmp_path).restarted == ["worker"]


def test_growth_is_told_per_trajectory(tmp_path: Path) -> None:
    curves = CurveFile(tmp_path)
    for number in range(TICKS):
        values = {
            CurveKey("buffer", "1.1", Figure.ANONYMOUS): 100 * MIB + number * MIB,
            CurveKey("trajectories", "", Figure.WORK): number * 4.0,
        }
        curves.append(number, values)
    (line,) = report_of(tmp_path).failures
    assert "buffer: anonymous memory" in line
    assert "0.2 MiB a trajectory" in line


def test_a_soak_that_is_cut_short_in_a_line_can_be_judged(tmp_path: Path) -> None:
    curves = CurveFile(tmp_path)
    for number in range(TICKS):
        curves.append(number, {CurveKey("worker", "1.1", Figure.ANONYMOUS): MIB})
    path = tmp_path / CURVES_FILE
    path.write_text(path.read_text() + "31,worker,1.1,thr")
    assert report_of(tmp_path).passed


async def test_judging_again_starts_nothing_and_says_where_there_are_no_samples(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no curves\.csv of a soak"):
        await measure_soak(SoakOptions(1.0, None, tmp_path))
    with pytest.raises(UserError, match="--judge starts nothing"):
        parse_options(SoakArguments(output=tmp_path / "new", judge=tmp_path))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["ray::RolloutWorker.run"], "worker"),
        (["ray::IDLE"], "Ray: IDLE"),
        (["sglang::scheduler_TP0"], "engine scheduler"),
        (["/v/bin/python", "-m", "sandbox.router", "--port", "0"], "router"),
        (
            ["/v/bin/python", "-I", "-S", "/v/actors/engines/server/process_reaper.py", "--", *ENGINE_SERVER],
            "engine reaper",
        ),
        (["/v/lib/python3.11/site-packages/ray/core/src/ray/gcs/gcs_server", "--log_dir=x"], "Ray: gcs_server"),
        (ENGINE_SERVER, "engine server"),
        (["sleep", "1000"], "sleep 1000"),
        ([""], ""),
    ],
)
def test_processes_are_named_by_their_part(words: list[str], part: str) -> None:
    assert name_part(words) == part
