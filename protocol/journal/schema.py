"""The journal's tables."""

from __future__ import annotations

SCHEMA = 5

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY) WITHOUT ROWID;
CREATE TABLE groups (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, seeds TEXT NOT NULL, size INTEGER NOT NULL,
    outcome TEXT NOT NULL, closed_seq INTEGER UNIQUE, used INTEGER NOT NULL DEFAULT 0);
CREATE INDEX groups_state ON groups (outcome, used, closed_seq);
CREATE TABLE rollout_requests (
    group_id INTEGER NOT NULL REFERENCES groups, sample INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT,
    PRIMARY KEY (group_id, sample)) WITHOUT ROWID;
CREATE INDEX requests_running ON rollout_requests (state) WHERE state = 'running';
CREATE INDEX requests_abandoned ON rollout_requests (state) WHERE state = 'abandoned';
CREATE TABLE trajectories (
    trajectory TEXT PRIMARY KEY, group_id INTEGER NOT NULL, sample INTEGER NOT NULL, bytes INTEGER NOT NULL,
    sampled INTEGER NOT NULL, digest BLOB NOT NULL, reward REAL NOT NULL, passed INTEGER NOT NULL,
    status TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'buffered', step INTEGER, reason TEXT, UNIQUE (group_id, sample));
CREATE INDEX trajectories_state ON trajectories (state, step, bytes);
CREATE INDEX trajectories_dropped ON trajectories (reason, sampled) WHERE state = 'dropped';
CREATE TABLE payloads (trajectory TEXT PRIMARY KEY, blob BLOB NOT NULL);
CREATE TABLE superseded_trajectories (
    group_id INTEGER NOT NULL, sample INTEGER NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (group_id, sample, digest)) WITHOUT ROWID;
"""

TRAINED, PASSED_OVER = 1, 2
"""Values of ``groups.used``: how a ready group was used; 0 while it is not."""
