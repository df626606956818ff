#!/usr/bin/env bash
# Install what the monitor's page has from the npm registry, as package-lock.json pins it; only what is missing.  With
# --browser also Debian's Chromium, which the tests of the page drive.  A part of tools/setup.sh; needs nothing of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

FOLDER=launch/pages/packages
MARK=$FOLDER/node_modules/.longshore-setup
LOGS=.longshore/logs
mkdir -p "$LOGS"

say() { printf 'setup: %s\n' "$*" >&2; }

wanted=$(sha256sum <"$FOLDER/package-lock.json")
if [ "$(cat "$MARK" 2>/dev/null)" != "$wanted" ]; then
    if ! command -v npm >/dev/null; then
        say "npm is not here, so the monitor's page has no curves and no replays: apt-get install npm, then make setup"
        exit 2
    fi
    if ! timeout 300 npm ci --prefix "$FOLDER" --no-audit --no-fund --ignore-scripts --fetch-retries 1 \
        >"$LOGS/page-packages.log" 2>&1 </dev/null; then
        say "npm could not bring the page's packages, so it has no curves and no replays ($LOGS/page-packages.log): make setup with a network"
        exit 2
    fi
    printf '%s\n' "$wanted" >"$MARK"
    say "Install the monitor's page packages (uPlot, asciinema-player): done"
fi

if [ "${1:-}" = --browser ] && ! command -v chromium >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "Chromium is not here, so the tests of the monitor's page are skipped: apt-get install chromium"
    elif timeout 900 sh -c "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium" \
        >"$LOGS/chromium.log" 2>&1 </dev/null && command -v chromium >/dev/null; then
        say "Install Chromium for the tests of the monitor's page: done"
    else
        say "Chromium could not be installed, so the tests of the monitor's page are skipped: $LOGS/chromium.log says why"
    fi
fi
