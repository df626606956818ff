"""The journal's tables, and how a file with them is opened."""

from __future__ import annotations

SCHEMA = 4

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY) WITHOUT ROWID;
CREATE TABLE groups (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, seeds TEXT NOT NULL, size INTEGER NOT NULL,
    outcome TEXT NOT NULL, closed_seq INTEGER UNIQUE, spent INTEGER NOT NULL DEFAULT 0);
CREATE INDEX groups_state ON groups (outcome, spent, closed_seq);
CREATE TABLE tickets (
    grp INTEGER NOT NULL REFERENCES groups, sample INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT,
    PRIMARY KEY (grp, sample)) WITHOUT ROWID;
CREATE INDEX tickets_out ON tickets (state) WHERE state = 'out';
CREATE INDEX tickets_abandoned ON tickets (state) WHERE state = 'abandoned';
CREATE TABLE rows (
    trajectory TEXT PRIMARY KEY, grp INTEGER NOT NULL, sample INTEGER NOT NULL, bytes INTEGER NOT NULL,
    sampled INTEGER NOT NULL, digest BLOB NOT NULL, reward REAL NOT NULL, passed INTEGER NOT NULL,
    status TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'held', step INTEGER, reason TEXT, UNIQUE (grp, sample));
CREATE INDEX rows_state ON rows (state, step, bytes);
CREATE INDEX rows_dropped ON rows (reason, sampled) WHERE state = 'dropped';
CREATE TABLE payloads (trajectory TEXT PRIMARY KEY, blob BLOB NOT NULL);
CREATE TABLE superseded (
    grp INTEGER NOT NULL, sample INTEGER NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (grp, sample, digest)) WITHOUT ROWID;
"""

TRAINED, PASSED_OVER = 1, 2
"""``groups.spent``: how a ready group was used; 0 while it was not."""
