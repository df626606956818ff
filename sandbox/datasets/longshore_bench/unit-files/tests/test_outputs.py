"""The units are read here as systemd reads them: drop-ins, lists, empty values."""

import re
import shlex
from pathlib import Path

UNITS = Path("/app/units")
LISTS = {
    "After",
    "Before",
    "Wants",
    "Requires",
    "BindsTo",
    "Requisite",
    "PartOf",
    "Conflicts",
    "Documentation",
    "WantedBy",
}
LISTS |= {"ExecStart", "ExecStartPre", "ExecStartPost", "Environment", "EnvironmentFile", "OnCalendar", "OnBootSec"}
LISTS |= {
    "RequiredBy",
    "Also",
    "Upholds",
    "StateDirectory",
    "ReadWritePaths",
    "OnUnitActiveSec",
    "OnActiveSec",
    "OnStartupSec",
}
WHOLE = {"ExecStart", "ExecStartPre", "ExecStartPost", "EnvironmentFile", "OnCalendar", "Environment"}
OLD_NAMES = {"StartLimitInterval": "StartLimitIntervalSec"}


def unit(name):
    """(section, key) → value, or list of values."""
    assert (UNITS / name).is_file(), f"{name} is gone"
    files = [UNITS / name, *sorted((UNITS / f"{name}.d").glob("*.conf"))]
    found = {}
    for file in files:
        section = ""
        for line in re.sub(r"\\\n\s*", " ", file.read_text()).splitlines():
            if line.strip().startswith(("#", ";")) or not line.strip():
                continue
            if line.startswith("["):
                section = line.strip()[1:-1]
                continue
            key, _, value = (part.strip() for part in line.partition("="))
            place = (section, OLD_NAMES.get(key, key))
            if key not in LISTS:
                found[place] = value
            elif not value:
                found[place] = []
            else:
                found[place] = found.get(place, []) + ([value] if key in WHOLE else value.split())
    return found


def seconds(text):
    factors = {"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "minutes": 60, "minute": 60, "seconds": 1}
    parts = re.findall(r"(\d+)\s*([a-z]*)", text)
    return sum(int(number) * factors[what] for number, what in parts)


def true(text):
    return str(text).lower() in ("yes", "true", "on", "1")


def test_api_waits_for_what_it_needs():
    api = unit("api.service")
    assert {"db.service", "network-online.target"} <= set(api["Unit", "After"])
    assert "db.service" in [*api.get(("Unit", "Requires"), []), *api.get(("Unit", "BindsTo"), [])]
    assert "network-online.target" in api.get(("Unit", "Wants"), [])
    assert "network-online.target" not in api.get(("Unit", "Requires"), [])


def test_api_runs_as_agreed():
    api = unit("api.service")
    assert api["Service", "ExecStart"] == ["/usr/local/bin/api --port 8080"]
    assert [api.get(("Service", key)) for key in ("Type", "User", "Group", "Restart")] == [
        "notify",
        "api",
        "api",
        "on-failure",
    ]
    assert seconds(api["Service", "RestartSec"]) == 5
    assert seconds(api["Unit", "StartLimitIntervalSec"]) == 60
    assert api["Unit", "StartLimitBurst"] == "3"


def test_api_environment():
    api = unit("api.service")
    assert api["Service", "EnvironmentFile"] == ["-/etc/api.env"]
    words = [word for each in api["Service", "Environment"] for word in shlex.split(each)]
    assert words[-1:] == ["LOG_LEVEL=info"]
    assert {word.partition("=")[0] for word in words} == {"LOG_LEVEL"}


def test_api_is_confined():
    api = unit("api.service")
    assert api.get(("Service", "StateDirectory")) == ["api"]
    assert api.get(("Service", "ProtectSystem")) == "strict"
    assert true(api.get(("Service", "NoNewPrivileges")))
    assert true(api.get(("Service", "ProtectHome"))) or api.get(("Service", "ProtectHome")) == "tmpfs"
    assert not api.get(("Service", "ReadWritePaths"))


def test_backup():
    timer, backup = unit("backup.timer"), unit("backup.service")
    (when,) = timer["Timer", "OnCalendar"]
    assert re.fullmatch(r"(\*-\*-\* )?0?2:30(:00?)?", when), when
    assert seconds(timer["Timer", "RandomizedDelaySec"]) == 600
    assert true(timer["Timer", "Persistent"])
    assert timer.get(("Timer", "Unit"), "backup.service") == "backup.service"
    assert not any(timer.get(("Timer", key)) for key in ("OnBootSec", "OnUnitActiveSec", "OnActiveSec", "OnStartupSec"))
    assert not backup.get(("Install", "WantedBy"))
    assert backup["Service", "Type"] == "oneshot"
    assert "db.service" in backup.get(("Unit", "After"), [])
    assert not any(
        "db.service" in backup.get(("Unit", key), [])
        for key in ("Requires", "Wants", "BindsTo", "Requisite", "Upholds")
    )
    everybody = [unit(name) for name in ("api.service", "db.service")]
    assert not any(
        "backup.service" in each.get(("Unit", key), []) for each in everybody for key in ("Wants", "Requires")
    )


def test_no_circle():
    names = ["api.service", "db.service", "backup.service", "backup.timer"]
    after = {name: set(unit(name).get(("Unit", "After"), [])) & set(names) for name in names}
    for name in names:
        for other in unit(name).get(("Unit", "Before"), []):
            after.setdefault(other, set()).add(name)
    assert not {"api.service", "backup.service", "backup.timer"} & after["db.service"]
    assert "db.service" in after["api.service"]
    assert "network.target" in unit("db.service")["Unit", "After"]


def test_enabled_with():
    assert unit("api.service")["Install", "WantedBy"] == ["multi-user.target"]
    assert unit("db.service")["Install", "WantedBy"] == ["multi-user.target"]
    assert unit("backup.timer")["Install", "WantedBy"] == ["timers.target"]


def test_all_else_is_kept():
    api, db, backup, timer = (unit(name) for name in ("api.service", "db.service", "backup.service", "backup.timer"))
    assert api["Service", "Type"] == "notify", "nothing was done"
    assert (api["Unit", "Description"], api["Service", "LimitNOFILE"]) == ("The API", "65536")
    assert seconds(api["Service", "TimeoutStopSec"]) == 20
    assert "network.target" in api["Unit", "After"]
    db_keys = ("Type", "User", "Restart")
    assert [db["Service", key] for key in db_keys] == ["exec", "db", "on-abnormal"]
    assert db["Service", "ExecStart"] == ["/usr/lib/db/bin/db -D /var/lib/db"]
    assert db["Unit", "Documentation"] == ["man:db(8)"]
    assert backup["Service", "ExecStart"] == ["/usr/local/bin/backup --all"]
    assert backup["Service", "ExecStartPost"] == ["/usr/local/bin/backup --verify"]
    assert backup["Service", "Nice"] == "10"
    assert seconds(timer["Timer", "AccuracySec"]) == 60
