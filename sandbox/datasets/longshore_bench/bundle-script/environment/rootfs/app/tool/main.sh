#!/bin/bash
set -e
. lib/log.sh
source "lib/math/add.sh"
source lib/log.sh

log "sum: $(add "$1" "$2")"
