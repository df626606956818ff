"""The tasks of the comparison with Harbor for what lies in a task's folder, and for reports that are rare."""

from __future__ import annotations

from tools.harness_comparison.cases import REWARD, ComparisonCase, passes_if

_LOGS = "/logs/verifier"
_NO_REWARD = "Harbor ends the trial with an error; here "
_LANG = "LANG is C.UTF-8 where neither image nor task sets it: programs here read and write any text"
_NAMED_IMAGE = "services:\n  main:\n    network_mode: none\n    image: harness-comparison-own-name:1\n"
_CTRF = '{"results": {"tests": [{"name": "a", "status": "passed"}, {"name": "b", "status": "failed"}]}}'

FILE_CASES = (
    # the environment's files
    ComparisonCase(
        "image-name-beside-dockerfile",
        passes_if("[ -e /built ]"),
        dockerfile="COPY m /built\n",
        files={"environment/m": "", "environment/docker-compose.yaml": _NAMED_IMAGE},
    ),
    ComparisonCase(
        "script-beside-dockerfile",
        passes_if("[ ! -e /ran ]"),
        files={
            "environment/Dockerfile": "FROM {base}\nWORKDIR /app\n",
            "environment/setup.sh": "touch /ran\n",
            "environment/rootfs/ran": "",
        },
    ),
    ComparisonCase(
        "copies-everything",
        passes_if("[ -e /g/docker-compose.yaml ] && [ -e /g/Dockerfile ]"),
        dockerfile="COPY . /g/\n",
    ),
    ComparisonCase(
        "dockerignore-of-the-dockerfile",
        passes_if("[ -e /g/a.md ] && [ ! -e /g/b.md ]"),
        dockerfile="COPY . /g/\n",
        files={
            "environment/a.md": "",
            "environment/b.md": "",
            "environment/.dockerignore": "a.md\n",
            "environment/Dockerfile.dockerignore": "b.md\n",
        },
    ),
    ComparisonCase(
        "ignored-files",
        passes_if("[ ! -e /tests/notes.md ] && [ -e /tests/d/notes.md ] && [ -e /app/x ]"),
        "[ ! -e /solution/draft ] && touch /app/x",
        files={
            "tests/.harborignore": "notes.md\n",
            "tests/notes.md": "",
            "tests/d/.harborignore": "!notes.md\n",
            "tests/d/notes.md": "",
            "solution/.harborignore": "draft/\n",
            "solution/draft/a": "",
        },
    ),
    ComparisonCase(
        "links-within-their-folder",
        passes_if(
            "cd /tests && grep -q data d/x && [ -x run ] && [ -x e/run ] && grep -q data /g/x && grep -q data /app/x"
        ),
        "cp /solution/x /app/x",
        dockerfile="COPY . /g/\n",
        files={
            "tests/y": "data",
            "tests/d/z": "",
            "tests/d/run": "#!/bin/sh\n",
            "environment/y": "data",
            "solution/y": "data",
        },
        links={"tests/d/x": "../y", "tests/run": "d/run", "tests/e": "d", "environment/x": "y", "solution/x": "y"},
    ),
    ComparisonCase(
        "links-between-folders",
        passes_if("[ -e /tests/x ]"),
        files={"environment/y": "data"},
        links={"tests/x": "../environment/y"},
        differs="copied to /tests, the link leads nowhere",
        refused="tests/x is not a regular file",
    ),
    ComparisonCase(
        "canary", f"echo 1 > {REWARD}", files={"instruction.md": "<!-- A canary: 26b5c67b -->\n# canary\n\nDo it.\n"}
    ),
    ComparisonCase(
        "empty-folders",
        passes_if("[ -d /tests/e ] && [ -d /g/e ] && [ -e /app/x ]"),
        "[ -d /solution/e ] && touch /app/x",
        dockerfile="COPY . /g/\n",
        files={"tests/e/": "", "solution/e/": "", "environment/e/": ""},
    ),
    ComparisonCase(
        "copied-to-a-folder-without-slash",
        passes_if("[ -e /app/f ] && [ -e /app/g ] && [ -e /o/f ] && [ -e /o/h ] && [ -e /p/f ] && [ -e /p/f2 ]"),
        dockerfile='RUN mkdir /o /p /q\nCOPY f g .\nCOPY ["f", "d*", "/o"]\nCOPY f* /p\nADD f d/* /q\n',
        files={"environment/f": "", "environment/f2": "", "environment/g": "", "environment/d/h": ""},
    ),
    ComparisonCase(
        "copied-modes",
        passes_if('[ "$(stat -c %a /g/s /g/p /g/d | xargs)" = "4755 600 700" ]'),
        dockerfile="COPY o /g\n",
        files={"environment/o/s": "", "environment/o/p": "", "environment/o/d/f": ""},
        modes={"environment/o/s": 0o4755, "environment/o/p": 0o600, "environment/o/d": 0o700},
        differs="only whether a file can be executed is kept, as by git: the umask of a checkout changes no reward",
    ),
    ComparisonCase(
        "dockerfile-misspelt",
        f"echo 1 > {REWARD}",
        dockerfile="CPOY f /\n",
        files={"environment/f": ""},
        differs="neither has an image; here the line is named before anything is built",
        refused="line 3: CPOY f /",
    ),
    ComparisonCase(
        "copied-times",
        passes_if(
            '[ "$(stat -c %Y /g/old /g/old-too)" = "$(printf \'1000000000\\n1000000000\')" ] && [ /g/new -nt /then ]'
        ),
        dockerfile="RUN touch -d 2000-01-01 /then\nCOPY d /g\nCOPY --chmod=600 d/old /g/old-too\n",
        files={"environment/d/old": "", "environment/d/new": ""},
        modified_s={"environment/d/old": 1_000_000_000},
    ),
    ComparisonCase(
        "copied-file-in-a-zip",
        passes_if("python3 -m zipfile -l /app/x.zip | grep -q copied"),
        "cd /app && python3 -m zipfile -c x.zip copied.txt",
        dockerfile="COPY copied.txt .\n",
        files={"environment/copied.txt": ""},
    ),
    ComparisonCase(
        "image-entrypoint-that-ends",
        f"echo 1 > {REWARD}",
        dockerfile='ENTRYPOINT ["true"]\n',
        differs="a container ends with its entrypoint, so Harbor has none; here the agent's goes on",
    ),
    ComparisonCase(
        "image-healthcheck-that-fails",
        f"echo 1 > {REWARD}",
        dockerfile="HEALTHCHECK --interval=1s --retries=1 CMD false\n",
        differs="Compose waits for the image's check, which is the image's own matter here: only the task's counts",
    ),
    ComparisonCase(
        "workdir-absent",
        passes_if("[ $PWD = /no/such ]"),
        settings='[environment]\nworkdir = "/no/such"',
        differs=f"{_NO_REWARD}the folder is created",
    ),
    # the tests' files
    ComparisonCase("test-script-name", passes_if('[ "${BASH_SOURCE[0]} $0" = "/tests/test.sh /tests/test.sh" ]')),
    ComparisonCase(
        "test-files-modes",
        passes_if("[ -r /tests/plain ] && [ ! -x /tests/plain ]"),
        files={"tests/plain": ""},
        differs="here all files of tests and solution are executable: a downloaded set may have lost their modes",
    ),
    ComparisonCase(
        "separate-image-without-tests",
        f"echo 1 > {REWARD}",
        settings='[verifier]\nenvironment_mode = "separate"',
        files={"tests/Dockerfile": "FROM {base}\nWORKDIR /app\n"},
        differs=f"both run the image's own /tests/test.sh, which is missing: {_NO_REWARD}that is 0",
    ),
    # the tests' variables
    ComparisonCase(
        "verifier-env-home",
        passes_if('[ "$HOME" = /tmp/h ]'),
        settings='[verifier.env]\nHOME = "/tmp/h"',
        differs="tests on the toolchain's programs have their user's home: an agent could have put files elsewhere",
    ),
    ComparisonCase(
        "verifier-env-path",
        passes_if('[ "$PATH" = /usr/bin:/bin:/own ]'),
        settings='[verifier.env]\nPATH = "/usr/bin:/bin:/own"',
        differs="the toolchain's folders come before it: an agent can replace the image's programs",
    ),
    ComparisonCase(
        "agent-env-lang",
        passes_if('[ "$(cat /app/x)" = unset,unset ]'),
        "echo ${LANG-unset},${PAGER-unset} > /app/x",
        differs=f"{_LANG}, and PAGER is cat, as no agent can turn pages",
    ),
    ComparisonCase("tests-env-lang", passes_if('[ -z "${LANG+set}" ]'), differs=_LANG),
    # reports
    ComparisonCase(
        "ctrf-alone",
        f"echo '{_CTRF.replace('failed', 'passed')}' > {_LOGS}/ctrf.json",
        differs=f"{_NO_REWARD}a report of tests counts without a reward beside it",
    ),
    ComparisonCase(
        "ctrf-fails-and-reward-1",
        f"echo '{_CTRF}' > {_LOGS}/ctrf.json; echo 1 > {REWARD}",
        differs="a report of tests counts before a reward, so that one that contradicts it earns nothing",
    ),
    ComparisonCase(
        "reward-json-mark",
        f"printf '\\357\\273\\277{{\"reward\": 1}}' > {_LOGS}/reward.json",
        differs=f"{_NO_REWARD}a byte order mark is no fault",
    ),
    ComparisonCase(
        "reward-json-number", f"echo 1 > {_LOGS}/reward.json", differs=f"{_NO_REWARD}a number without a name counts"
    ),
    ComparisonCase(
        "reward-json-empty-and-text",
        f"> {_LOGS}/reward.json; echo 1 > {REWARD}",
        differs=f"{_NO_REWARD}an empty report is none, so the text counts",
    ),
    ComparisonCase(
        "reward-link",
        f"echo 1 > {_LOGS}/r; ln -s r {REWARD}",
        differs="a report must be the regular file that was put there: a link could lead to the agent's files",
    ),
)
