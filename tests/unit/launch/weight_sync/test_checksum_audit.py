"""If these fail, engines serve different weights under one version, or restart for ever."""

from launch.weight_sync.checksum_audit import ChecksumAudit, ChecksumMismatch
from protocol.weights import WeightVersion

ENGINES = 2


def record(audit: ChecksumAudit, engine: str, version: int, checksum: str) -> ChecksumMismatch | None:
    return audit.record(engine, WeightVersion(version), checksum, ENGINES)


def test_checksums_that_differ_name_every_engine_that_holds_the_version() -> None:
    audit = ChecksumAudit()
    assert record(audit, "a", 1, "x") is None
    assert record(audit, "b", 1, "y") == ({"a": "x", "b": "y"}, False)


def test_a_mismatch_is_repeated_until_all_engines_have_agreed() -> None:
    audit = ChecksumAudit()
    found = [record(audit, engine, version, engine) for version in (1, 2) for engine in ("a", "b")]
    assert [mismatch and mismatch.is_repeated for mismatch in found] == [None, False, None, True]
    for engine in ("a", "b"):
        assert record(audit, engine, 3, "same") is None
    record(audit, "a", 4, "x")
    assert record(audit, "b", 4, "y") == ({"a": "x", "b": "y"}, False)


def test_an_engine_with_an_older_version_is_not_compared() -> None:
    audit = ChecksumAudit()
    record(audit, "a", 2, "x")
    assert record(audit, "b", 1, "y") is None
