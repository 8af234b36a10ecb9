"""Forgetting old events, so that the journal's file does not grow for ever: what SQLite frees, it uses again."""

import sqlite3
from collections.abc import Iterable
from itertools import takewhile

from gpu_runtime.protocol.messages import TERMINAL_WORKLOAD_STATES
from gpu_runtime.protocol.wire import unpack

_TRIMMED = "trimmed_through"
_OLDEST = (
    "SELECT seq, job_id, attempt, occurred_at_us, body FROM events"
    " WHERE seq <= ? AND seq < (SELECT MAX(seq) FROM events) ORDER BY seq LIMIT ?"
)
_OF_ATTEMPTS = ("metric_points", "policy_versions", "artifacts_told", "billed_work")


def trim(connection: sqlite3.Connection, *, through: int, before_us: int, most: int) -> int:
    """Delete the oldest events, at most ``most``, up to ``through`` and older than ``before_us``; returns how many.

    The newest event stays: it holds the place of the sequence. Workloads stay, so that an old submit starts nothing.
    To be called inside a transaction.
    """
    rows = connection.execute(_OLDEST, (through, most)).fetchall()
    old = list(takewhile(lambda row: row[3] < before_us, rows))
    if not old:
        return 0
    bodies = (unpack(row[4]) for row in old)
    used = [(body["event_id"],) for body in bodies if body["type"] == "usage"]
    connection.executemany("DELETE FROM usage_ids WHERE event_id = ?", used)
    connection.execute("DELETE FROM events WHERE seq <= ?", (old[-1][0],))
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_TRIMMED, str(old[-1][0])))
    _forget_attempts(connection, {(row[1], row[2]) for row in old if row[1] is not None})
    return len(old)


def trimmed_through(connection: sqlite3.Connection) -> int:
    """The last sequence number that was deleted; 0 when none was."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_TRIMMED,)).fetchone()
    return 0 if row is None else int(row[0])


def _forget_attempts(connection: sqlite3.Connection, attempts: Iterable[tuple[str, int]]) -> None:
    """What kept an attempt's events from being written twice, once it has ended and its last event is gone."""
    terminal = ",".join(f"'{state}'" for state in sorted(TERMINAL_WORKLOAD_STATES))
    for attempt in attempts:
        gone = connection.execute(
            f"SELECT 1 FROM workloads WHERE job_id = ? AND attempt = ? AND state IN ({terminal})"  # noqa: S608
            " AND NOT EXISTS (SELECT 1 FROM events WHERE job_id = workloads.job_id AND attempt = workloads.attempt)",
            attempt,
        ).fetchone()
        for table in _OF_ATTEMPTS if gone else ():
            connection.execute(f"DELETE FROM {table} WHERE job_id = ? AND attempt = ?", attempt)  # noqa: S608
