#!/bin/bash
# logging
log() { printf '[tool] %s\n' "$*"; }
