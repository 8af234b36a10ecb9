"""Tables of the journal, one SQLite file."""

import sqlite3
from pathlib import Path

PAGE_BYTES = 4096
_UNLIMITED_PAGES = 4294967294

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT, attempt INTEGER, tenant_id TEXT,
    occurred_at_us INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_job ON events (job_id, attempt, seq);
-- A metric is written once per (job, attempt, step, name), however often its step is redone.
CREATE TABLE IF NOT EXISTS metric_points (
    job_id TEXT, attempt INTEGER, step INTEGER, name TEXT, PRIMARY KEY (job_id, attempt, step, name)) WITHOUT ROWID;
-- A policy version is announced once, though its file may be found again after a restart.
CREATE TABLE IF NOT EXISTS policy_versions (
    job_id TEXT, attempt INTEGER, version INTEGER, PRIMARY KEY (job_id, attempt, version)) WITHOUT ROWID;
-- So is an artifact, though whoever made it may find it again and tell of it again.
CREATE TABLE IF NOT EXISTS artifacts_told (
    job_id TEXT, attempt INTEGER, artifact_id TEXT, PRIMARY KEY (job_id, attempt, artifact_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage_ids (event_id TEXT PRIMARY KEY) WITHOUT ROWID;
-- A piece of work is billed once; its repetition is written as not billable.
CREATE TABLE IF NOT EXISTS billed_work (
    job_id TEXT, attempt INTEGER, work TEXT, PRIMARY KEY (job_id, attempt, work)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS workloads (
    job_id TEXT, attempt INTEGER, tenant_id TEXT NOT NULL, submit BLOB NOT NULL, digest TEXT NOT NULL,
    state TEXT NOT NULL, total_steps INTEGER NOT NULL, step INTEGER NOT NULL, reason TEXT, message TEXT,
    PRIMARY KEY (job_id, attempt));
-- How an attempt was asked to stop: the first ask stands.
CREATE TABLE IF NOT EXISTS stops (
    job_id TEXT, attempt INTEGER, body BLOB NOT NULL, PRIMARY KEY (job_id, attempt)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open in WAL mode with a durable commit; explicit transactions only; usable from any one thread at a time."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def limit_size(connection: sqlite3.Connection, max_bytes: int | None) -> None:
    """Let SQLite itself refuse growth past ``max_bytes`` (None: no limit) with its "database or disk is full"."""
    pages = _UNLIMITED_PAGES if max_bytes is None else max(1, max_bytes // PAGE_BYTES)
    connection.execute(f"PRAGMA max_page_count={pages}")
