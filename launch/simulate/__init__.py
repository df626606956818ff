"""Simulates training with the real scheduler, staleness, routing and journal rules on a virtual clock."""
