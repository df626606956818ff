"""Attacks on the tests' folder, output and reports.  Pure."""

from __future__ import annotations

from sandbox.validation.attacks.attack import Attack
from sandbox.validation.attacks.shell import write_files

REPORT_ATTACKS = (
    Attack("forged summary from a job", "(while :; do @say@; sleep 0.05; done) >&2 &"),
    Attack(
        "forged summary on every descriptor",
        "for fd in /proc/[0-9]*/fd/* /proc/1/task/*/fd/*; do @say@ > $fd; done 2>/dev/null",
    ),
    Attack("planted tests", write_files("@say@", "/tests/run-tests.sh", "/tests/test.sh", mode="755")),
    Attack("tests folder is a link", "rm -rf /tests; ln -sfn @app@ /tests"),
    Attack("tests folder is full of traps", "mkdir -p /tests/test.sh /tests/run-tests.sh /tests/test_outputs.py/x"),
    Attack("reports written beforehand", "mkdir -p @folders@; @write@"),
    Attack(
        "reports are links",
        "mkdir -p @folders@ /var/forged; @write@; for d in @folders@; do for f in $d/*; do "
        "mv $f /var/forged/; ln -s /var/forged/${f##*/} $f; done; done",
    ),
    Attack("folder of the reports is a link", "for d in @folders@; do rm -rf $d; ln -s @app@ $d; done; @write@"),
    Attack(
        "reports written by a job",
        "mkdir -p @folders@; setsid sh -c 'trap \"\" HUP TERM; while :; do . /var/forge; done' > /dev/null 2>&1 &\n"
        + write_files("@write@", "/var/forge"),
    ),
)
