"""If these fail, a living owner's containers are swept, or an owner counts as dead without proof."""

import os
import subprocess

from sandbox.docker import owner


def test_the_current_process_is_not_dead():
    assert not owner.is_proved_dead(owner.owner_of_this_process())


def test_an_ended_process_is_dead_even_if_its_pid_is_reused():
    with subprocess.Popen(["sleep", "60"]) as process:
        label = owner.owner_of_process(process.pid)
        assert not owner.is_proved_dead(label)
        process.kill()
    assert owner.is_proved_dead(label)
    reused = owner.owner_of_this_process().rpartition("/")[0] + "/1"
    assert owner.is_proved_dead(reused)


def test_an_owner_of_another_boot_namespace_or_format_is_not_declared_dead():
    for label in ("", "nonsense", f"other-boot/1/{os.getpid()}/5", "a/b/c/d/e"):
        assert not owner.is_proved_dead(label)
