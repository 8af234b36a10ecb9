"""The durable event journal: what the control plane pulls, and what a restarted runtime goes on from."""

import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_runtime.protocol.messages import (
    TERMINAL_WORKLOAD_STATES,
    ArtifactPublished,
    Event,
    EventBody,
    MetricsRecorded,
    PolicyVersionPublished,
    StopJob,
    UsageMetered,
)
from gpu_runtime.protocol.wire import pack, unpack
from gpu_runtime.store.errors import EventsTrimmed, journal_error
from gpu_runtime.store.records import Entry, WorkloadChange, WorkloadRow, Write
from gpu_runtime.store.rows import WORKLOAD_COLUMNS, event_of, workload_of
from gpu_runtime.store.schema import TABLES, connect, limit_size
from gpu_runtime.store.trimming import trim, trimmed_through

REDONE = "redone_after_restart"
PROBE_BYTES = 256 * 1024
_ONE_MORE_START = (
    "INSERT INTO meta VALUES ('starts', '1') ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
)


class Journal:
    """One writer, any number of readers. Every method blocks on the disk: call it off the event loop.

    ``path``: the SQLite file. ``max_bytes``: refuse to grow past this (None: no limit).
    Raises JournalUnwritable or DiskFull when the file cannot be opened or written.
    """

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._listeners: list[Callable[[int], None]] = []
        try:
            self._writer, self._reader = connect(path), connect(path)
            self._writer.executescript(TABLES)
            limit_size(self._writer, max_bytes)
            self._writer.execute("INSERT OR IGNORE INTO meta VALUES ('journal_id', ?)", (str(uuid.uuid4()),))
            self._writer.execute(_ONE_MORE_START)
        except sqlite3.Error as error:
            raise journal_error(error) from error
        (self.journal_id,) = self._reader.execute("SELECT value FROM meta WHERE key = 'journal_id'").fetchone()
        (starts,) = self._reader.execute("SELECT value FROM meta WHERE key = 'starts'").fetchone()
        self.starts = int(starts)  # how often a runtime has opened this journal, this time included
        self._last_seq = self._read_last_seq()

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest event; 0 in an empty journal."""
        return self._last_seq

    def on_append(self, listener: Callable[[int], None]) -> None:
        """Call ``listener(last_seq)`` after each append that added events, in the writing thread."""
        self._listeners.append(listener)

    def set_max_bytes(self, max_bytes: int | None) -> None:
        """Change the size limit of the running journal."""
        with self._write_lock:
            limit_size(self._writer, max_bytes)

    def append(self, write: Write) -> int:
        """Make ``write`` durable as ONE transaction; returns the last sequence number. Raises StoreError."""
        with self._transaction():
            self._apply(write)
        if write.entries:
            self._last_seq = self._read_last_seq()
            for listener in self._listeners:
                listener(self._last_seq)
        return self._last_seq

    def probe(self) -> None:
        """Write and remove as much as an append may need. Raises StoreError while that is refused."""
        with self._transaction():
            self._writer.execute("INSERT OR REPLACE INTO snapshots VALUES ('probe', zeroblob(?))", (PROBE_BYTES,))
        with self._transaction():
            self._writer.execute("DELETE FROM snapshots WHERE name = 'probe'")

    def read(self, *, after: int, limit: int) -> list[Event]:
        """Events with a sequence number above ``after``, oldest first, at most ``limit``. Raises EventsTrimmed."""
        with self._read_lock:
            rows = self._reader.execute(
                "SELECT seq, job_id, attempt, tenant_id, occurred_at_us, body"
                " FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                (after, limit),
            ).fetchall()
            trimmed = trimmed_through(self._reader)  # after the rows: what was missing there is known here
        if after < trimmed:
            raise EventsTrimmed(f"after is {after}; events up to {trimmed} were applied long ago and are gone")
        return [event_of(row) for row in rows]

    def trim(self, *, through: int, before_us: int, most: int) -> int:
        """Forget old events as ``trimming.trim`` says; returns how many. Raises StoreError."""
        with self._transaction():
            return trim(self._writer, through=through, before_us=before_us, most=most)

    def metrics(self, job_id: str, attempt: int, step: int) -> dict[str, float]:
        """Every metric recorded at one step of an attempt."""
        with self._read_lock:
            rows = self._reader.execute(
                "SELECT body FROM events WHERE job_id = ? AND attempt = ? ORDER BY seq DESC", (job_id, attempt)
            )
            values: dict[str, float] = {}
            for (body,) in rows:
                event = unpack(body)
                if event["type"] == "metrics" and event["step"] == step:
                    values |= event["values"]
                elif event["type"] == "metrics" and event["step"] < step:
                    break
        return values

    def metric(self, job_id: str, attempt: int, name: str, step: int) -> float | None:
        """One metric of an attempt as it was last recorded at ``step`` or before; None when it never was."""
        with self._read_lock:
            rows = self._reader.execute(
                "SELECT body FROM events WHERE job_id = ? AND attempt = ? ORDER BY seq DESC", (job_id, attempt)
            )
            for (body,) in rows:
                event = unpack(body)
                if event["type"] == "metrics" and event["step"] <= step and name in event["values"]:
                    return float(event["values"][name])
        return None

    def artifacts_told(self, job_id: str, attempt: int) -> frozenset[str]:
        """Ids of what an attempt has published."""
        with self._read_lock:
            rows = self._reader.execute(
                "SELECT artifact_id FROM artifacts_told WHERE job_id = ? AND attempt = ?", (job_id, attempt)
            ).fetchall()
        return frozenset(artifact_id for (artifact_id,) in rows)

    def workload(self, job_id: str, attempt: int) -> WorkloadRow | None:
        """The row of one attempt, or None."""
        rows = self._workloads("WHERE job_id = ? AND attempt = ?", (job_id, attempt))
        return rows[0] if rows else None

    def unfinished_workloads(self) -> list[WorkloadRow]:
        """Attempts that have not reached a terminal state, oldest first."""
        terminal = sorted(TERMINAL_WORKLOAD_STATES)
        return self._workloads(f"WHERE state NOT IN ({','.join('?' * len(terminal))}) ORDER BY rowid", tuple(terminal))

    def stop(self, job_id: str, attempt: int) -> StopJob | None:
        """How an attempt was first asked to stop; None if it never was."""
        with self._read_lock:
            row = self._reader.execute(
                "SELECT body FROM stops WHERE job_id = ? AND attempt = ?", (job_id, attempt)
            ).fetchone()
        return None if row is None else StopJob.model_validate(unpack(row[0]))

    def queue_dump(self) -> dict[str, Any] | None:
        """The training queue as of the last write that carried one."""
        return self._snapshot("training_queue")

    def drained(self) -> dict[str, str]:
        """Every drained service, and why."""
        return self._snapshot("drained") or {}

    def _snapshot(self, name: str) -> dict[str, Any] | None:
        with self._read_lock:
            row = self._reader.execute("SELECT body FROM snapshots WHERE name = ?", (name,)).fetchone()
        return None if row is None else unpack(row[0])

    def close(self) -> None:
        """Close both connections; SQLite folds the write-ahead log into the file."""
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One writer at a time; durable as a whole at the end of the block, or not at all. Raises StoreError."""
        with self._write_lock:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield
                self._writer.execute("COMMIT")
            except sqlite3.Error as error:
                self._rollback()
                raise journal_error(error) from error
            except BaseException:
                self._rollback()
                raise

    def _apply(self, write: Write) -> None:
        for entry in write.entries:
            self._insert_event(entry)
        if write.accepted is not None:
            self._insert_workload(write.accepted)
        for change in write.changes:
            self._update_workload(change)
        for name, body in (("training_queue", write.queue), ("drained", write.drained)):
            if body is not None:
                self._writer.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (name, pack(dict(body))))

    def _insert_event(self, entry: Entry) -> None:
        body: EventBody | None = entry.body
        match body:
            case MetricsRecorded():
                body = self._without_known_points(entry, body)
            case UsageMetered():
                body = self._billed_once(entry, body)
            case PolicyVersionPublished():
                key = (entry.job_id, entry.attempt, body.version)
                body = body if self._is_new("policy_versions", key) else None
            case ArtifactPublished():
                told = (entry.job_id, entry.attempt, body.artifact_id)
                body = body if self._is_new("artifacts_told", told) else None
        if body is not None:
            self._writer.execute(
                "INSERT INTO events (job_id, attempt, tenant_id, occurred_at_us, body) VALUES (?, ?, ?, ?, ?)",
                (
                    entry.job_id,
                    entry.attempt,
                    entry.tenant_id,
                    entry.occurred_at_us,
                    pack(body.model_dump(mode="python")),
                ),
            )

    def _without_known_points(self, entry: Entry, body: MetricsRecorded) -> MetricsRecorded | None:
        """Steps since the last checkpoint are redone after a crash with the same values: keep the first."""
        new = {
            name: value
            for name, value in body.values.items()
            if self._is_new("metric_points", (entry.job_id, entry.attempt, body.step, name))
        }
        return MetricsRecorded(step=body.step, values=new) if new else None

    def _billed_once(self, entry: Entry, body: UsageMetered) -> UsageMetered | None:
        """The same event twice is dropped; the same work twice was really computed, and is not billed again."""
        if not self._is_new("usage_ids", (body.event_id,)):
            return None
        if not body.billable or entry.work is None:
            return body
        if self._is_new("billed_work", (entry.job_id, entry.attempt, entry.work)):
            return body
        return body.model_copy(update={"billable": False, "reason": REDONE})

    def _is_new(self, table: str, key: tuple[object, ...]) -> bool:
        marks = ",".join("?" * len(key))
        return self._writer.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", key).rowcount == 1  # noqa: S608

    def _insert_workload(self, row: WorkloadRow) -> None:
        self._writer.execute(
            f"INSERT INTO workloads ({WORKLOAD_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            tuple(getattr(row, name) for name in WORKLOAD_COLUMNS.split(", ")),
        )

    def _update_workload(self, change: WorkloadChange) -> None:
        self._writer.execute(
            "UPDATE workloads SET state = COALESCE(?, state), reason = COALESCE(?, reason),"
            " message = COALESCE(?, message), step = MAX(step, COALESCE(?, step)) WHERE job_id = ? AND attempt = ?",
            (change.state, change.reason, change.message, change.step, change.job_id, change.attempt),
        )
        if change.stop is not None:
            body = pack(change.stop.model_dump(mode="python"))
            self._writer.execute("INSERT OR IGNORE INTO stops VALUES (?, ?, ?)", (change.job_id, change.attempt, body))

    def _workloads(self, where: str, parameters: tuple[object, ...]) -> list[WorkloadRow]:
        with self._read_lock:
            rows = self._reader.execute(
                f"SELECT {WORKLOAD_COLUMNS} FROM workloads {where}",  # noqa: S608
                parameters,
            ).fetchall()
        return [workload_of(row) for row in rows]

    def _read_last_seq(self) -> int:
        with self._read_lock:
            return self._reader.execute("SELECT COALESCE(MAX(seq), 0) FROM events").fetchone()[0]

    def _rollback(self) -> None:
        """SQLite has rolled back by itself after some errors ("no transaction is active"): both are fine."""
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
