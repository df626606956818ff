#!/usr/bin/env bash
# Make this checkout ready to run: virtual environment, packages, the page's packages, PID 1, Docker engine, base image.
# Does only what is missing; what is there is recognised by a digest, not by asking pip.  Full logs: .longshore/logs/.
#   PYTHON=python3.12 tools/setup.sh        another interpreter (3.11 or newer)
#   TORCH_INDEX=URL tools/setup.sh          where torch comes from, if your index prefers its CUDA build
#   SETUP_DOCKER=0 tools/setup.sh           packages only
#   SETUP_BROWSER=0 tools/setup.sh          without Chromium, which only the tests of the monitor's page need
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ASKED=${PYTHON:-}
PYTHON=${PYTHON:-python3}
VENV=.venv
MARK=$VENV/longshore-setup
LOGS=.longshore/logs
mkdir -p "$LOGS"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
unset PYTHONPATH VIRTUAL_ENV

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

# step NAME TEXT COMMAND…: run a command with its output in a log; on failure show the log's end.
step() {
    local name=$1 text=$2 began=$SECONDS
    shift 2
    say "$text …"
    if ! "$@" >"$LOGS/$name.log" 2>&1 </dev/null; then
        tail -n 15 "$LOGS/$name.log" >&2
        say "$text: failed; the whole log is $LOGS/$name.log"
        exit 1
    fi
    say "$text: done in $((SECONDS - began)) s"
}

make_venv() {
    command -v "$PYTHON" >/dev/null || fail "there is no '$PYTHON' on PATH: make setup PYTHON=/path/to/python3.11"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or newer is needed, '$PYTHON' is $("$PYTHON" -V 2>&1): make setup PYTHON=python3.11"
    if ! "$PYTHON" -c 'import ensurepip' 2>/dev/null; then
        local package
        package=$("$PYTHON" -c 'import sys; print(f"python3.{sys.version_info[1]}-venv")')
        { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } ||
            fail "'$PYTHON' cannot make virtual environments: install $package (apt-get install $package)"
        step apt-venv "Install $package" sh -c "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y $package"
    fi
    local free_mb
    free_mb=$(df -Pm . | awk 'NR == 2 {print $4}')
    [ "$free_mb" -ge 6000 ] || fail "$free_mb MB are free here and the packages need 6000: free some space"
    step venv "Make $VENV with $("$PYTHON" -V)" "$PYTHON" -m venv --clear "$VENV"
}

install_packages() {
    # torch first, alone and unconstrained: the index chooses the build, and a CUDA build brings packages of its own, among
    # them another triton.  An index that is named for torch need not have the pinned versions of what torch needs.
    local torch
    torch=$(grep '^torch==' constraints.txt)
    step torch "Install $torch (about 200 MB; gigabytes where the index prefers its CUDA build)" \
        "$VENV/bin/python" -m pip install ${TORCH_INDEX:+--no-deps --index-url "$TORCH_INDEX"} "$torch"
    step packages "Install what else is in constraints.txt ($(($(grep -c '==' constraints.txt) - 1)) packages)" \
        "$VENV/bin/python" -m pip install --no-deps --requirement constraints.txt
    step project "Install longshore itself, editable" \
        "$VENV/bin/python" -m pip install --no-deps --no-build-isolation --editable .
    step import "Import torch, ray and sglang's parts once" \
        "$VENV/bin/python" -c 'import torch, ray, transformers, zmq, aiodocker, sglang'
}

python_stage() {
    local wanted
    wanted="$(cat pyproject.toml constraints.txt tools/setup.sh | sha256sum | cut -d ' ' -f 1) $PWD"
    if same_python && [ "$(cat "$MARK" 2>/dev/null)" = "$wanted $("$VENV/bin/python" -V 2>&1)" ]; then return 0; fi
    [ ! -L "$VENV" ] || rm "$VENV" # another checkout's, which stays as it is
    if same_python && can_be_kept; then
        say "$VENV is not what pyproject.toml and constraints.txt ask for: bringing it up to date"
    else
        make_venv
    fi
    rm -f "$MARK"
    install_packages
    printf '%s %s\n' "$wanted" "$("$VENV/bin/python" -V 2>&1)" >"$MARK"
}

# Whether the environment is of the Python that was asked for; any will do where none was.
same_python() {
    [ -x "$VENV/bin/python" ] && { [ -z "$ASKED" ] || [ "$("$VENV/bin/python" -V 2>&1)" = "$("$PYTHON" -V 2>&1)" ]; }
}

# One whose making was cut off has no pip, nor has one whose Python was replaced by a later version; the scripts of one
# that was moved point at the old place.
can_be_kept() {
    "$VENV/bin/python" -m pip --version >/dev/null 2>&1 &&
        "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' &&
        grep -qsF "$PWD/$VENV" "$VENV/bin/activate"
}

# One set-up at a time in a checkout; what it starts (dockerd) must not keep the lock.
exec 9>.longshore/setup.lock
flock -n 9 || { say "another make setup runs here: waiting for it"; flock 9; }
python_stage 9>&-
page=(--browser)
[ "${SETUP_BROWSER:-1}" != 0 ] || page=()
tools/page_packages.sh ${page[@]+"${page[@]}"} 9>&- || true # it has said what is missing; training needs none of it
exec 9>&-
if [ "${SETUP_DOCKER:-1}" != 0 ]; then
    "$VENV/bin/python" -m sandbox.host up </dev/null >&2
fi
say "ready: $VENV, $("$VENV/bin/python" -V)"
