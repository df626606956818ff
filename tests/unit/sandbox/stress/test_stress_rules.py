"""If these fail, a stress run counts a wrong answer as right, or reports a wrong figure."""

from __future__ import annotations

import json

import pytest

from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError
from sandbox.docker.inventory import DockerInventory
from sandbox.stress import nonces, options
from sandbox.stress.faults import FAULTS
from sandbox.stress.nonces import NonceVerdict, check_nonce, find_ledger_problems, make_nonce, mark_command
from sandbox.stress.options import DEFAULT_COMMANDS, StressArguments, StressOptions
from sandbox.stress.report import FaultTally, StressReport, percentile, ratio

RUN = "0123abcd"
OWN, OTHER = make_nonce(RUN, 3, 7), make_nonce(RUN, 4, 7)


# ---- answers ----


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (f"{OWN}\n", NonceVerdict.RIGHT),
        (f"what the command printed\n{OWN}\nand a job in the background", NonceVerdict.RIGHT),
        ("", NonceVerdict.LOST),
        (OWN[:-1], NonceVerdict.LOST),
        (f"{OWN}\n{OWN}\n", NonceVerdict.TWICE),
        (f"{OTHER}\n", NonceVerdict.FOREIGN),
        (f"{OTHER}\n{OWN}\n", NonceVerdict.FOREIGN),
        (f"{make_nonce('ffffffff', 3, 7)}\n", NonceVerdict.FOREIGN),
    ],
)
def test_only_exactly_one_matching_nonce_is_a_right_answer(output: str, expected: NonceVerdict):
    assert check_nonce(output, OWN) is expected


def test_nonces_with_a_common_prefix_are_not_confused():
    assert check_nonce(make_nonce(RUN, 3, 71), make_nonce(RUN, 3, 7)) is NonceVerdict.FOREIGN


def test_an_invalid_command_still_prints_its_nonce():
    text = mark_command("if 'unfinished", OWN)
    assert text.startswith(f"echo {OWN} >>{nonces.LEDGER_FILE}; eval ")
    assert text.endswith(f"\necho {OWN}")
    assert not mark_command("true", OWN, answer=False).endswith(OWN)


def test_a_ledger_of_commands_done_once_is_in_order():
    text = "".join(f"{make_nonce(RUN, 3, number)}\n" for number in (1, 2, 3))
    assert find_ledger_problems(text, RUN, 3, {1, 2, 3, 4}, {1, 2, 3}) == []


def test_repeated_foreign_and_unexecuted_commands_are_found_in_the_ledger():
    text = f"{make_nonce(RUN, 3, 1)}\n{make_nonce(RUN, 3, 1)}\n{OTHER}\n"
    assert find_ledger_problems(text, RUN, 3, {1, 2}, {1, 2}) == [
        f"{make_nonce(RUN, 3, 1)} executed 2 times",
        f"{OTHER!r} executed, but never sent",
        f"{make_nonce(RUN, 3, 2)} answered, but never executed",
    ]


# ---- figures ----


def test_percentiles_are_values_that_were_measured():
    assert percentile([], 50) is None
    assert percentile([7.0], 50) == percentile([7.0], 95) == 7.0
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.0
    assert percentile([float(each) for each in range(1, 101)], 95) == 95.0


def test_a_ratio_without_both_values_is_null():
    assert ratio(1.0, 4.0) == 0.25
    assert ratio(None, 4.0) is ratio(1.0, None) is ratio(1.0, 0.0) is None


def whole() -> StressReport:
    report = StressReport(sessions=2, live_peak=2, commands=10)
    report.starts.add(2, 0.25)
    report.floor_starts.add(2, 0.2)
    report.acquire_ms, report.command_ms = [1.0, 2.0], [0.5]
    report.docker_exec_ms, report.pipe_ms, report.bytes_per_session = [60.0], [0.25], 4096
    report.faults["oom"] = FaultTally(injected=3, resumed=2, lost_typed=1)
    return report


def test_the_json_has_the_agreed_keys_and_each_ratio_the_agreed_way_round():
    found = json.loads(json.dumps(whole().json()))
    assert found == {
        "sessions": 2,
        "live_peak": 2,
        "commands": 10,
        "wrong_answers": 0,
        "leaked_containers": 0,
        "start": {"per_s": 8.0, "floor_per_s": 10.0},
        "acquire_ms": {"p50": 1.0, "p95": 2.0},
        "command_ms": {"p50": 0.5, "p95": 0.5},
        "docker_exec_ms": {"p50": 60.0},
        "pipe_ms": {"p50": 0.25},
        "command_vs_exec": 120.0,
        "command_vs_pipe": 2.0,
        "start_vs_floor": 0.8,
        "bytes_per_session": 4096,
        "faults": {"oom": {"injected": 3, "resumed": 2, "lost_typed": 1, "skipped": 0}},
    }


def test_unmeasured_values_are_null():
    found = StressReport(sessions=1).json()
    assert found["start"] == {"per_s": None, "floor_per_s": None}
    assert found["acquire_ms"] == {"p50": None, "p95": None}
    assert found["command_vs_exec"] is found["command_vs_pipe"] is found["start_vs_floor"] is None


def test_each_broken_check_fails_the_run():
    assert whole().ok
    wrong, fewer, leaked, lost, unaccounted, interrupted = (whole() for _ in range(6))
    wrong.add_wrong_answer("x")
    fewer.live_peak = 1
    leaked.add_leaks(DockerInventory(frozenset({"c"}), frozenset(), frozenset()))
    lost.add_failure("x")
    unaccounted.faults["oom"].injected += 1
    interrupted.interrupted = True
    assert not any(report.ok for report in (wrong, fewer, leaked, lost, unaccounted, interrupted))
    assert leaked.json()["leaked_containers"] == 1


def test_a_leaked_volume_network_or_image_fails_the_run():
    report = whole()
    report.add_leaks(DockerInventory(frozenset(), frozenset({"n"}), frozenset({"v"}), frozenset({"i"})))
    assert report.failures == 3


# ---- options ----


def read(arguments: list[str]) -> StressOptions:
    return parse_arguments(StressArguments, arguments, "stress").options({"LONGSHORE_SANDBOX_TOKEN": "secret"})


def test_the_default_run_ends_within_a_minute():
    assert 0 < read([]).duration_s < 60


def test_options_are_read():
    chosen = read(
        ["--sessions", "3", "--rate", "50", "--duration-s", "1.5", "--server", "http://127.0.0.1:18081/", "--json"]
    )
    assert chosen == StressOptions(3, 50.0, 1.5, DEFAULT_COMMANDS, (), "http://127.0.0.1:18081", "secret")


def test_faults_are_given_apart_or_with_commas_or_all():
    assert options.parse_fault_names(["oom,fork-bomb", "oom"]) == ("oom", "fork-bomb")
    assert options.parse_fault_names(["all"]) == tuple(FAULTS)
    assert options.parse_fault_names([]) == ()
    with pytest.raises(UserError, match=r"no fault 'om': choose all, server-kill, .*hung-exec; did you mean 'oom'"):
        options.parse_fault_names(["om"])


def test_every_documented_fault_exists():
    assert set(FAULTS) == {
        "server-kill", "client-kill", "shim-kill", "dockerd-kill", "dockerd-stop",
        "oom", "fork-bomb", "disk-full", "output-bomb", "log-bomb", "hung-exec",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sessions", "0"], "at least 1"),
        (["--sessions", "many"], "a valid integer"),
        (["--rate", "-1"], "at least 0"),
        (["--rate", "inf"], "a finite number"),
        (["--duration-s", "0"], "above 0"),
        (["--duration-s", "nan"], "a finite number"),
        (["--faults", "dockrd-kill"], "did you mean 'dockerd-kill'"),
        (["--server", "127.0.0.1:18081"], "http://127.0.0.1:18081"),
        (["--commands", "/no/such/file"], "cannot be read"),
        (["--what"], "--help"),
    ],
)
def test_an_invalid_option_is_refused_in_one_line(arguments: list[str], message: str):
    with pytest.raises(UserError) as caught:
        read(arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_command_file_has_one_command_per_line_and_comments(tmp_path):
    file = tmp_path / "commands"
    file.write_text("# what agents do\nls -l\n\n  cd /tmp; pwd\n")
    assert read(["--commands", str(file)]).commands == ("ls -l", "cd /tmp; pwd")
    file.write_text("# nothing\n")
    with pytest.raises(UserError, match="has no command"):
        options.read_commands(file)
    file.write_text("echo \0\n")
    with pytest.raises(UserError, match="no NUL"):
        options.read_commands(file)
