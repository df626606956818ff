"""Test scripts as public tasks have them, to the letter but for the installer's host; each wants a network."""

from __future__ import annotations

INSTALL = """#!/bin/bash

# Install curl
apt-get update
apt-get install -y curl

# Install uv
curl -LsSf https://installer.example/uv/0.7.13/install.sh | sh

source $HOME/.local/bin/env
"""
_IN_A_FOLDER = """
# Check if we're in a valid working directory
if [ "$PWD" = "/" ]; then
    echo "Error: No working directory set. Please set a WORKDIR in your Dockerfile before running this script."
    exit 1
fi
"""
PROJECT = f"""{INSTALL}{_IN_A_FOLDER}
uv init
uv add pytest==8.4.1

uv run pytest $TEST_DIR/test_outputs.py -rA
"""
ENVIRONMENT = f"""{INSTALL}
uv venv .tbench-testing
source .tbench-testing/bin/activate
uv pip install pytest==8.4.1

uv run pytest $TEST_DIR/test_outputs.py -rA
"""
ACTIVATED = f"""{INSTALL.replace("#!/bin/bash", "#!/usr/bin/env bash")}
set -euo pipefail
uv venv -p 3.13 /opt/venv && . /opt/venv/bin/activate
uv pip install -q "pytest>=8,<9"
pytest "$TEST_DIR/test_outputs.py" -rA
"""
HARBOR = """#!/bin/bash

# Install curl
apt-get update
apt-get install -y curl

# Install uv
curl -LsSf https://installer.example/uv/0.9.7/install.sh | sh

source $HOME/.local/bin/env

# CTRF produces a standard test report in JSON format which is useful for logging.
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA

if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
REPORTS = ("/logs/verifier/ctrf.json", "/logs/verifier/reward.txt")

STOCK = {
    "project": (PROJECT, ()),
    "environment": (ENVIRONMENT, ()),
    "activated": (ACTIVATED, ()),
    "harbor": (HARBOR, REPORTS),
}
"""Name → script, and where it leaves reports."""
