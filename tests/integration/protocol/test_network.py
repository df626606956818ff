"""Two network namespaces with a cable of their own, addresses of their own, and keys.  If these fail, a switch that
restarts or a bad cable costs trajectories, or trains some twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from receiver_process import GROUPS, open_journal

from protocol.stream import CurveClient, RunKeys, make_run_keys
from tests.support.network import delaying_forwarder as forwarder
from tests.support.network import namespaces
from tests.support.network.namespaces import Cable

HERE = Path(__file__).parent
PORT, DELAYED_PORT = 7411, 7412
pytestmark = pytest.mark.skipif(namespaces.why_unavailable() is not None, reason=str(namespaces.why_unavailable()))


@contextmanager
def process(cable: Cable, namespace: str, script: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = cable.command(namespace, sys.executable, str(script), *map(str, arguments))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as started:
        try:
            yield started
        finally:
            started.kill()


@contextmanager
def receiver(cable: Cable, folder: Path, keys: RunKeys) -> Iterator[subprocess.Popen[str]]:
    script = HERE / "receiver_process.py"
    with process(cable, cable.here, script, folder, "--host", cable.address, "--port", PORT) as started:
        server = keys.server
        admitted = [key.decode() for key in server.clients]
        tell(started, {"public": server.public.decode(), "secret": server.secret.decode(), "clients": admitted})
        assert lines(started, 1) == [f"tcp://{cable.address}:{PORT}"]
        yield started


@contextmanager
def sender(
    cable: Cable, name: str, keys: CurveClient, groups: tuple[int, int], port: int = PORT
) -> Iterator[subprocess.Popen[str]]:
    with process(cable, cable.there, HERE / "network_sender.py") as started:
        triple = [key.decode() for key in (keys.public, keys.secret, keys.server)]
        endpoint = f"tcp://{cable.address}:{port}"
        tell(started, {"endpoint": endpoint, "name": name, "keys": triple, "groups": groups})
        yield started


@contextmanager
def delaying_forwarder(cable: Cable, delay_s: float, uneven_s: float) -> Iterator[subprocess.Popen[str]]:
    """Before the receiver, at ``DELAYED_PORT``."""
    arguments = (cable.address, DELAYED_PORT, PORT, delay_s, uneven_s)
    with process(cable, cable.here, Path(forwarder.__file__), *arguments) as started:
        assert lines(started, 1) == [f"listening {DELAYED_PORT}"]
        yield started


def tell(process: subprocess.Popen[str], orders: dict[str, object]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(orders) + "\n")
    process.stdin.flush()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def acknowledged(process: subprocess.Popen[str]) -> list[str]:
    """Return the process's output until it ends by itself."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return output.splitlines()


def assert_accounting(folder: Path, acknowledged_ids: list[str]) -> None:
    """Each sample is acknowledged once, and in the journal once."""
    names = [line.split()[0] for line in acknowledged_ids]
    expected = [f"train-g{group:06d}-s{sample:02d}" for group in range(GROUPS) for sample in range(4)]
    assert sorted(names) == expected
    journal = open_journal(folder)
    accounting = journal.accounting()
    journal.close()
    assert (accounting.acknowledged, accounting.in_buffer, accounting.superseded, accounting.unknown) == (
        4 * GROUPS,
        4 * GROUPS,
        0,
        0,
    )


def run(folder: Path, cuts_s: Sequence[float] = (), disturb: Callable[[Cable], bool] = lambda _: True) -> None:
    """Two senders; after the first group of each the cable is cut for so long, again and again."""
    keys = make_run_keys(["a", "b"])
    with namespaces.cable() as cable, receiver(cable, folder, keys):
        if not disturb(cable):
            pytest.skip("this kernel cannot do that to a cable")
        with (
            sender(cable, "a", keys.clients["a"], (0, GROUPS // 2)) as a,
            sender(cable, "b", keys.clients["b"], (GROUPS // 2, GROUPS)) as b,
        ):
            acknowledged_ids = [line for each in (a, b) for line in lines(each, 4)]
            if cuts_s:
                cable.disconnect()
            for each in (a, b):
                tell(each, {})
            for cut_s in cuts_s:
                time.sleep(cut_s)
                cable.reconnect()
                time.sleep(cut_s / 10)
                cable.disconnect()
            cable.reconnect()
            acknowledged_ids += acknowledged(a) + acknowledged(b)
    assert_accounting(folder, acknowledged_ids)


@pytest.mark.slow
def test_no_trajectory_is_lost_or_doubled_when_the_cable_is_cut_for_seconds(tmp_path: Path) -> None:
    """Cut for three seconds; the next test's thirty seconds are past every heartbeat of ZeroMQ."""
    run(tmp_path, [3.0])


@pytest.mark.slow
def test_no_trajectory_is_lost_or_doubled_when_the_cable_is_cut_for_half_a_minute(tmp_path: Path) -> None:
    run(tmp_path, [30.0])


@pytest.mark.slow
def test_no_trajectory_is_lost_or_doubled_when_the_cable_is_cut_repeatedly(tmp_path: Path) -> None:
    run(tmp_path, [0.4] * 12)


@pytest.mark.slow
def test_no_trajectory_is_lost_or_doubled_when_packets_are_dropped(tmp_path: Path) -> None:
    run(tmp_path, disturb=lambda cable: cable.drop_packets(0.05))


@pytest.mark.slow
def test_no_trajectory_is_lost_or_doubled_when_a_forwarder_delays_by_a_heartbeat(tmp_path: Path) -> None:
    """Each direction is delayed by about the time between two heartbeats: answers come after the next question."""
    keys = make_run_keys(["a"])
    with (
        namespaces.cable() as cable,
        receiver(cable, tmp_path, keys),
        delaying_forwarder(cable, 0.2, 0.1) as delaying,
        sender(cable, "a", keys.clients["a"], (0, GROUPS), DELAYED_PORT) as a,
    ):
        tell(a, {})
        acknowledged_ids = acknowledged(a)
        assert lines(delaying, 1) == ["connected"]
    assert_accounting(tmp_path, acknowledged_ids)


def test_no_trajectory_is_lost_or_doubled_when_packets_are_late_and_duplicated(tmp_path: Path) -> None:
    run(tmp_path, disturb=lambda cable: cable.add_delay("delay", "40ms", "20ms", "duplicate", "1%"))


@pytest.mark.slow
def test_no_trajectory_is_lost_or_doubled_when_packets_are_dropped_and_the_cable_is_cut(tmp_path: Path) -> None:
    run(tmp_path, [12.0], lambda cable: cable.drop_packets(0.1))


def test_a_stranger_on_the_same_network_can_store_nothing_and_is_named(tmp_path: Path) -> None:
    keys, foreign = make_run_keys(["a"]), make_run_keys(["a"]).clients["a"]
    stranger = CurveClient(foreign.public, foreign.secret, keys.server.public)
    with (
        namespaces.cable() as cable,
        receiver(cable, tmp_path, keys) as receiving,
        sender(cable, "stranger", stranger, (0, GROUPS)),
    ):
        assert lines(receiving, 1) == [f"refused unauthenticated {foreign.public.decode()}"]
    journal = open_journal(tmp_path)
    assert journal.accounting().acknowledged == 0
    journal.close()
